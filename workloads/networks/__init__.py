"""One small file per network; `workloads.catalogue` lists them."""
