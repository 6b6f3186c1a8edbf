"""TVM 0.26 under the names of 0.27, for corpora of faults that were mended between the two.

In 0.26, constants are a class of Relax's own with their value in `data`, and a region's buffer is
its `buffer`."""

import tvm
from tvm import relax, tirx

if not hasattr(tvm.ir, "GenericConst"):
    tvm.ir.GenericConst = relax.Constant
    relax.Constant.value = property(lambda constant: constant.data)
    tirx.BufferRegion.source = property(lambda region: region.buffer)
