"""The paper: diffusion → targets → distillation, and the teachers. Needs torch alone; knows no config, device or epoch."""
