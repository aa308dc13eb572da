"""A stock Horovod rank that meets its peers once and ends."""

import horovod.torch as hvd

hvd.init()
hvd.barrier()
print("met", hvd.rank(), "of", hvd.size())
hvd.shutdown()
