"""What each row of each table of the paper must be, written by hand: its parts, and what is built of them."""

MS, PAIRS, OBD = "multi-similarity", "pairwise", "batch-diffusion(omega=0.3)"
EPOCH, BORN, FOUR, ONE = "previous-epoch", "born-again", "s2sd(feature_from=2)", "s2sd(widths=[2048], feature_from=2)"
STEEP = "proxy-anchor(alpha=64.0, margin=0.2)"
NEAREST, DIVIDED = "margin(sampling=nearest, trained=false)", "divide-and-conquer(every=1, clustered=features, whole_from=0.4)"
PAST = "memvir(sets=2, gap=0, warm=0)"
FEATURES = "s2sd(feature_weight=50.0, feature_from=2)"

# Teacher, or the system whose heads teach; targets. Written by hand from the paper.
HOW = {
    "": ("none", None),
    "psd-constant": (EPOCH, PAIRS),
    "psd": (EPOCH, PAIRS),
    "obd-sd": (EPOCH, OBD),
    "batch": (EPOCH, OBD),
    "obd-sd-softmax": (EPOCH, "batch-diffusion(omega=0.3, form=softmax)"),
    "mean-mix": (EPOCH, "mean-mix(omega=0.3)"),
    "uniform-mix": (EPOCH, "uniform-mix(omega=0.3)"),
    "flat": (EPOCH, "pairwise(scale=0.7)"),
    "global": (EPOCH, "global-diffusion(omega=0.3, neighbours=5)"),
    "proxy-diffusion": (EPOCH, "proxy-diffusion(omega=0.3)"),
    "ema": ("ema", PAIRS),
    "memory": ("memory", PAIRS),
    "bar": (BORN, PAIRS),
    "s2sd-dsd": (ONE, PAIRS),
    "s2sd-msd": (FOUR, PAIRS),
    "s2sd-msdf": (FEATURES, PAIRS),
}
HOW |= {f"{name}+obdp": (HOW[name][0], OBD) for name in ("bar", "s2sd-dsd", "s2sd-msd", "s2sd-msdf")}


def on_ms(*methods):
    return {"ms": (MS, *HOW[""]), **{method: (MS, *HOW[method]) for method in methods}}


def on_loss(name, loss, *methods):
    return {f"{name}+{method}".rstrip("+"): (loss, *HOW[method]) for method in ("", *methods)}


# What each row must be: base loss, and how it is taught.
EXPECTED = {
    "strong-baselines": on_loss("margin", "margin", "obd-sd") | on_loss("r-margin", "r-margin", "obd-sd") | on_loss("ms", MS, "obd-sd"),
    "sota": {name + d: (MS, *HOW["obd-sd"]) for name in ("r50-128", "ibn-512", "r50-512") for d in ("", "+d")}
    | {"epshn": ("epshn", *HOW[""]), "proxygml": ("proxy-gml", *HOW[""]), "rankmi": ("rankmi", *HOW[""])}
    | {"div-and-conq": (NEAREST, DIVIDED, None), "pa+drml": (STEEP, "drml", None)}
    | {"mic": ("margin", "mic(every=1)", None), "dcml-mdw": ("margin", "dcml", None), "diva": ("margin", "diva", None)}
    | {"pads": ("margin(beta=0.6)", "pads(every=1)", None)}
    | {"rcl": ("none", "self-transfer(proxy-anchor)", OBD), "ms+plg": (MS, "classes", OBD)}  # their matchings ask for no targets
    | {"ms+das": (MS, "das(scaled=8)", None)}
    | {"norm-softmax+memvir": ("norm-softmax", PAST, None), "proxynca+memvir": ("norm-softmax(scale=24.0)", PAST, None)}
    | {"pa+memvir": ("proxy-anchor", PAST, None)},
    "elements": on_ms("psd-constant", "psd", "obd-sd", "obd-sd-softmax", "mean-mix", "uniform-mix", "flat", "ema", "memory"),
    "sampling": on_loss("margin-distance", "margin", "obd-sd")
    | on_loss("margin-random", "margin(sampling=random)", "obd-sd")
    | on_loss("margin-semihard", "margin(sampling=semihard)", "obd-sd")
    | on_loss("margin-softhard", "margin(sampling=softhard)", "obd-sd"),
    "self-distillation": on_ms("bar", "psd", "s2sd-msd", "obd-sd"),
    "obdp": {row: (MS, *HOW[row]) for row in ("bar", "bar+obdp", "s2sd-msd", "s2sd-msd+obdp")},
    "s2sd": {row + more: (MS, *HOW[row + more]) for row in ("s2sd-dsd", "s2sd-msd", "s2sd-msdf") for more in ("", "+obdp")},
    "manifolds": on_ms("global", "batch"),
    "space": on_ms("psd", "obd-sd"),
    "noise": {f"{name}-{share}": (MS, *HOW[how]) for share in (0.1, 0.2, 0.3, 0.4) for name, how in (("ms", ""), ("obd-sd", "obd-sd"))},
    "omega": {f"omega-{w}": (MS, EPOCH, f"batch-diffusion(omega={w})") for w in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)}
    | {"psd": (MS, EPOCH, PAIRS)},
    "lambda": {"ms": (MS, *HOW[""]), **{f"lambda-{w}": (MS, EPOCH, OBD) for w in (100, 500, 1000, 2000, 5000)}},
    "proxies": on_loss("proxy-anchor", "proxy-anchor", "psd", "obd-sd", "proxy-diffusion")
    | on_loss("proxy-nca", "proxy-nca", "psd", "obd-sd", "proxy-diffusion")
    | on_loss("soft-triple", "soft-triple", "psd", "obd-sd", "proxy-diffusion"),
    "self-supervised": on_loss("nt-xent", "nt-xent", "psd", "obd-sd"),
}
UNTAUGHT = ("none", "pads(every=1)", "mic(every=1)", "dcml", "diva", "das(scaled=8)", PAST, DIVIDED, "drml")  # who teaches nobody
CONSTANT = ("psd-constant", "bar", "s2sd", "rcl", "ms+plg")  # rows whose weight does not grow with the epochs

FOUR_HEADS = "heads of 512, 1024, 1536, 2048"
BUILT = {
    MS: "MultiSimilarityLoss with MultiSimilarityMiner",
    "margin": "MarginLoss with distance",
    "r-margin": "MarginLoss with regularised",
    **{f"margin(sampling={drawn})": f"MarginLoss with {drawn}" for drawn in ("random", "semihard", "softhard")},
    "proxy-anchor": "ProxyAnchorLoss",
    "proxy-nca": "ProxyNCALoss",
    "soft-triple": "SoftTripleLoss",
    "nt-xent": "NTXentLoss",
    "epshn": "EasyPositive",
    "proxy-gml": "ProxyGML",
    NEAREST: "MarginLoss with nearest",
    DIVIDED: "DivideAndConquer",
    STEEP: "ProxyAnchorLoss",
    "drml": "DRML",
    "rankmi": "RankMI with distance",
    "margin(beta=0.6)": "MarginLoss with BinnedSampler",
    "pads(every=1)": "PADS",
    "mic(every=1)": "MIC",
    "dcml": "DCML",
    "diva": "DiVA",
    "none": "NoTeacher",
    "self-transfer(proxy-anchor)": "SelfTransferTeacher",
    "classes": "ClassTeacher",
    "das(scaled=8)": "DAS",
    PAST: "MemVir",
    "norm-softmax": "NormSoftmax",
    "norm-softmax(scale=24.0)": "NormSoftmax",
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
