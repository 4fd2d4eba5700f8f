"""The measurements under benchmarks/results are pages of the site too. Read by mkdocs alone (mkdocs.yml)."""

from pathlib import Path

from mkdocs.structure.files import File


def on_files(files, config):
    for page in Path(config.config_file_path).parent.glob("benchmarks/results/*.md"):
        files.append(File.generated(config, f"benchmarks/{page.name}", abs_src_path=str(page)))


def on_page_markdown(markdown, **_):
    return markdown.replace("](../benchmarks/results/", "](benchmarks/")
