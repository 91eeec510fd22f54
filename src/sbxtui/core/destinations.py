"""The destinations an allow list can name by one word: data, and the only place where their hosts are written down.

A preset opens everything those hosts serve, which for registries and forges includes what strangers publish there, and
often a way to publish.
"""

from __future__ import annotations

from collections.abc import Mapping

PRESETS: Mapping[str, tuple[str, ...]] = {
    # Package registries
    "alpine": ("dl-cdn.alpinelinux.org:80", "dl-cdn.alpinelinux.org:443"),
    "conda": ("conda.anaconda.org:443", "repo.anaconda.com:443"),
    "crates": ("crates.io:443", "index.crates.io:443", "static.crates.io:443"),
    "debian": (
        "deb.debian.org:80",
        "deb.debian.org:443",
        "security.debian.org:80",
        "security.debian.org:443",
    ),
    "docker": ("auth.docker.io:443", "registry-1.docker.io:443", "production.cloudflare.docker.com:443"),
    "go": ("proxy.golang.org:443", "sum.golang.org:443"),
    "maven": ("repo.maven.apache.org:443", "repo1.maven.org:443"),
    "npm": ("registry.npmjs.org:443",),
    "pypi": ("files.pythonhosted.org:443", "pypi.org:443"),
    "rubygems": ("index.rubygems.org:443", "rubygems.org:443"),
    "ubuntu": (
        "archive.ubuntu.com:80",
        "archive.ubuntu.com:443",
        "security.ubuntu.com:80",
        "security.ubuntu.com:443",
    ),
    # Forges
    "github": (
        "api.github.com:443",
        "codeload.github.com:443",
        "github.com:443",
        "*.githubusercontent.com:443",
    ),
    "gitlab": ("gitlab.com:443",),
    # Model APIs and model weights
    "anthropic": ("api.anthropic.com:443",),
    "gemini": ("generativelanguage.googleapis.com:443",),
    "huggingface": ("huggingface.co:443", "*.hf.co:443"),
    "mistral": ("api.mistral.ai:443",),
    "openai": ("api.openai.com:443",),
    "openrouter": ("openrouter.ai:443",),
}

# Where variables of these names go, as people and programs know them: presets, or places of their own.
SECRET_HOSTS: Mapping[str, tuple[str, ...]] = {
    "ANTHROPIC_API_KEY": ("anthropic",),
    "GEMINI_API_KEY": ("gemini",),
    "GH_TOKEN": ("api.github.com", "github.com"),
    "GITHUB_TOKEN": ("api.github.com", "github.com"),
    "GITLAB_TOKEN": ("gitlab",),
    "GOOGLE_API_KEY": ("gemini",),
    "HF_TOKEN": ("huggingface.co",),
    "MISTRAL_API_KEY": ("mistral",),
    "NPM_TOKEN": ("npm",),
    "OPENAI_API_KEY": ("openai",),
    "OPENROUTER_API_KEY": ("openrouter",),
}
