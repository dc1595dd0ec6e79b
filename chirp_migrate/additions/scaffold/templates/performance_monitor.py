"""How long training waits for its batches, GPU utilisation and memory, from the chirpid_patch package.

    from utils.performance_monitor import DataLoaderPerformanceMonitor
    monitor = DataLoaderPerformanceMonitor()
    print(monitor.time_batch_loading(loader, num_batches=20))
    with monitor.watch() as usage:
        train()
    print(usage.mean_gpu_utilization, usage.peak_memory_bytes)
"""

from chirpid_patch import DataLoaderPerformanceMonitor

__all__ = ["DataLoaderPerformanceMonitor"]
