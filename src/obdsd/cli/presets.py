"""List the presets, or show what one of them sets: obdsd presets, obdsd presets ms+obd-sd cub200:PATH."""

from __future__ import annotations

from dataclasses import dataclass

from obdsd.options import PARTS, TrainOptions, as_dict, option


@dataclass(frozen=True)
class Options:
    preset: str | None = option(None, "A preset whose settings are shown, as ms+obd-sd.", positional=True)
    data: str = option("folder:photos", "The data that it is to be used with: they have settings of their own.", positional=True)


def run(options: Options) -> None:
    print(listing() if options.preset is None else settings(options.preset, options.data))


def listing() -> str:
    """Every loss and every method with its sentence."""
    from obdsd.options import RECOMMENDED
    from obdsd.presets import LOSSES, METHODS, SENTENCES

    lines = ["the default:", f"  {RECOMMENDED:<16} {SENTENCES[RECOMMENDED]}", ""]
    lines += ["losses, and systems with a loss of their own, each a preset:", *(f"  {name:<16} {SENTENCES[name]}" for name in LOSSES)]
    methods = [name for name in METHODS if name]
    lines += ["", "methods, each added to a loss, as ms+psd:", *(f"  +{name:<15} {SENTENCES[name]}" for name in methods)]
    return "\n".join([*lines, "", "obdsd presets PRESET DATA shows the settings of one."])


def settings(name: str, data: str) -> str:
    """What a preset sets for these data, as YAML: the parts, and what is not the default of obdsd train."""
    from obdsd.files import to_yaml
    from obdsd.presets import preset

    found, usual = as_dict(preset(name, data)), as_dict(TrainOptions(data))
    shown = {option: value for option, value in found.items() if option in ("preset", *PARTS) or value != usual[option]}
    return to_yaml(shown).rstrip()
