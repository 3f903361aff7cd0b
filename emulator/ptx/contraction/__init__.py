"""Contraction by ptxas: the additions that take the product of a multiplication unrounded.

ptxas with its default options (``-fmad=true``) turns ``mul`` and ``add`` or ``sub`` that name no
rounding into one fused multiply-add where its rules allow, so the bits of a kernel depend on those
rules. NVIDIA publishes none of them. The ones below were read off ptxas 13.0 and 13.5 for sm_80,
sm_90a, sm_100a and sm_120a: the machine code of random programs was compared with that of the same
programs with every fusion written out as ``fma.rn``, which a test repeats where the tools are
installed. What was measured stands beside each rule, as cases that agree.

Not covered, and rare in compiled code: ptxas contracts once more after it has unrolled a loop, or
repeated an expression behind two or more branches. A product that is added in another iteration or
behind such branches may be fused where this says that it is not. Functions are judged one by one,
though ptxas inlines device functions. ``x > c ? c : x`` becomes a min.NaN.
"""
