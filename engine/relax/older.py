"""TVM 0.26 under the names of 0.27, for corpora of faults that were mended between the two.

There, Relax's constants have their value in `data`, and a region's buffer is its `buffer`."""

import tvm
from tvm import relax, tirx

if not hasattr(tvm.ir, "GenericConst"):
    tvm.ir.GenericConst = relax.Constant
    relax.Constant.value = property(lambda constant: constant.data)
    tirx.BufferRegion.source = property(lambda region: region.buffer)
