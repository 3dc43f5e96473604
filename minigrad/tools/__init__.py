"""Small tools of several packages: tables, files, the configuration."""
