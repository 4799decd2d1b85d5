"""One small working implementation of each kind: the good fakes of the kits' tests, and what `rllm plugins
new` copies into a new package. In these files `Example` and `example` are placeholders for the plugin's name."""
