"""What each row of each table of the paper must be, written by hand: its parts, and what is built of them."""

MS, PAIRS, OBD = "multi-similarity", "pairwise", "batch-diffusion(omega=0.3)"
EPOCH, BORN, FOUR, ONE = "previous-epoch", "born-again", "s2sd(feature_from=2)", "s2sd(widths=[2048], feature_from=2)"
FEATURES = "s2sd(feature_weight=50.0, feature_from=2)"
ALONE = ("none", None)

# What each row must be: base loss; teacher, or the system whose heads teach; targets. Written by hand from the paper.
EXPECTED = {
    "strong-baselines": {
        "margin": ("margin", *ALONE),
        "margin+obd-sd": ("margin", EPOCH, OBD),
        "r-margin": ("r-margin", *ALONE),
        "r-margin+obd-sd": ("r-margin", EPOCH, OBD),
        "ms": (MS, *ALONE),
        "ms+obd-sd": (MS, EPOCH, OBD),
    },
    "sota": {name + d: (MS, EPOCH, OBD) for name in ("r50-128", "ibn-512", "r50-512") for d in ("", "+d")},
    "elements": {
        "ms": (MS, *ALONE),
        "psd-constant": (MS, EPOCH, PAIRS),
        "psd": (MS, EPOCH, PAIRS),
        "obd-sd": (MS, EPOCH, OBD),
        "obd-sd-softmax": (MS, EPOCH, "batch-diffusion(omega=0.3, form=softmax)"),
        "mean-mix": (MS, EPOCH, "mean-mix(omega=0.3)"),
        "uniform-mix": (MS, EPOCH, "uniform-mix(omega=0.3)"),
        "flat": (MS, EPOCH, "pairwise(scale=0.7)"),
        "ema": (MS, "ema", PAIRS),
        "memory": (MS, "memory", PAIRS),
    },
    "sampling": {
        f"margin-{drawn}{more}": ("margin" if drawn == "distance" else f"margin(sampling={drawn})", *how)
        for drawn in ("random", "semihard", "softhard", "distance")
        for more, how in (("", ALONE), ("+obd-sd", (EPOCH, OBD)))
    },
    "self-distillation": {
        "ms": (MS, *ALONE),
        "bar": (MS, BORN, PAIRS),
        "psd": (MS, EPOCH, PAIRS),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "obd-sd": (MS, EPOCH, OBD),
    },
    "obdp": {
        "bar": (MS, BORN, PAIRS),
        "bar+obdp": (MS, BORN, OBD),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "s2sd-msd+obdp": (MS, FOUR, OBD),
    },
    "s2sd": {
        "s2sd-dsd": (MS, ONE, PAIRS),
        "s2sd-dsd+obdp": (MS, ONE, OBD),
        "s2sd-msd": (MS, FOUR, PAIRS),
        "s2sd-msd+obdp": (MS, FOUR, OBD),
        "s2sd-msdf": (MS, FEATURES, PAIRS),
        "s2sd-msdf+obdp": (MS, FEATURES, OBD),
    },
    "manifolds": {"ms": (MS, *ALONE), "global": (MS, EPOCH, "global-diffusion(omega=0.3, neighbours=5)"), "batch": (MS, EPOCH, OBD)},
    "space": {"ms": (MS, *ALONE), "psd": (MS, EPOCH, PAIRS), "obd-sd": (MS, EPOCH, OBD)},
    "noise": {f"{name}-{share}": (MS, *how) for share in (0.1, 0.2, 0.3, 0.4) for name, how in (("ms", ALONE), ("obd-sd", (EPOCH, OBD)))},
    "omega": {
        "psd": (MS, EPOCH, PAIRS),
        **{f"omega-{w}": (MS, EPOCH, f"batch-diffusion(omega={w})") for w in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)},
    },
    "lambda": {"ms": (MS, *ALONE), **{f"lambda-{w}": (MS, EPOCH, OBD) for w in (100, 500, 1000, 2000, 5000)}},
    "proxies": {
        loss + method: (loss, *how)
        for loss in ("proxy-anchor", "proxy-nca", "soft-triple")
        for method, how in (
            ("", ALONE),
            ("+psd", (EPOCH, PAIRS)),
            ("+obd-sd", (EPOCH, OBD)),
            ("+proxy-diffusion", (EPOCH, "proxy-diffusion(omega=0.3)")),
        )
    },
    "self-supervised": {
        "nt-xent": ("nt-xent", *ALONE),
        "nt-xent+psd": ("nt-xent", EPOCH, PAIRS),
        "nt-xent+obd-sd": ("nt-xent", EPOCH, OBD),
    },
}
CONSTANT = ("psd-constant", "bar", "s2sd")  # rows whose weight does not grow with the epochs

FOUR_HEADS = "heads of 512, 1024, 1536, 2048"
BUILT = {
    MS: "_MultiSimilarity with MultiSimilarityMiner",
    "margin": "MarginLoss with distance",
    "r-margin": "MarginLoss with regularised",
    **{f"margin(sampling={drawn})": f"MarginLoss with {drawn}" for drawn in ("random", "semihard", "softhard")},
    "proxy-anchor": "ProxyAnchorLoss",
    "proxy-nca": "ProxyNCALoss",
    "soft-triple": "SoftTripleLoss",
    "nt-xent": "NTXentLoss",
    "none": "NoTeacher",
    EPOCH: "PreviousEpochTeacher",
    BORN: "BornAgainTeacher",
    "ema": "EMATeacher",
    "memory": "MemoryTeacher",
    ONE: "heads of 2048",
    FOUR: FOUR_HEADS,
    FEATURES: f"{FOUR_HEADS}, features at 50",
    PAIRS: "PairwiseTargets(scale=1.0)",
    "pairwise(scale=0.7)": "PairwiseTargets(scale=0.7)",
    "batch-diffusion(omega=0.3, form=softmax)": "BatchDiffusion(omega=0.3, form='softmax', walk_temperature=1.0)",
    "global-diffusion(omega=0.3, neighbours=5)": "GlobalDiffusion(omega=0.3, neighbours=5)",
    "proxy-diffusion(omega=0.3)": "ProxyDiffusion(omega=0.3)",
    "mean-mix(omega=0.3)": "MeanMix(omega=0.3)",
    "uniform-mix(omega=0.3)": "UniformMix(omega=0.3)",
    **{
        f"batch-diffusion(omega={omega})": f"BatchDiffusion(omega={omega}, form='symmetric', walk_temperature=1.0)"
        for omega in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    },
    None: None,
}
