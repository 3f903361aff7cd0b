"""The operators of PyTorch that multiply and whose bits on a GPU are not known, by kind.

Under the mode, PyTorch computes them on the CPU, and they are listed with the evidence "none". The
operators that are computed with the bits of a GPU are in `operations` and `convolutions`; every
other operator of aten is no product, or consists of operators that the mode sees. A test goes
through torch's own registry of operators.
"""

from __future__ import annotations

from functools import cache

#: kind -> operators of aten, without the "_" of those that work in place. An overload that PyTorch
#: makes of others is not meant, unless COMPOSITES has it or its tensors are nested or sparse
UNKNOWN: dict[str, str] = {
    "fused attention": """
        scaled_dot_product_attention _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_cudnn_attention
        _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
        _scaled_dot_product_efficient_attention_backward
        _scaled_dot_product_fused_attention_overrideable
        _scaled_dot_product_fused_attention_overrideable_backward
        _scaled_dot_product_attention_math_for_mps _flash_attention_forward
        _flash_attention_backward _flash_attention_forward_no_dropout_inplace
        _efficient_attention_forward _efficient_attention_backward _cudnn_attention_forward
        _cudnn_attention_backward _native_multi_head_attention _triton_multi_head_attention
        _triton_scaled_dot_attention _transformer_encoder_layer_fwd""",
    "recurrent layers, which are cuDNN's on a GPU": """
        lstm gru rnn_tanh rnn_relu _cudnn_rnn _cudnn_rnn_backward miopen_rnn miopen_rnn_backward
        mkldnn_rnn_layer mkldnn_rnn_layer_backward _lstm_mps lstm_mps_backward quantized_lstm
        quantized_gru quantized_lstm_cell quantized_gru_cell quantized_rnn_tanh_cell
        quantized_rnn_relu_cell""",
    "products in kernels of their own": """
        _addmm_activation _trilinear addbmm vdot _grouped_mm _scaled_grouped_mm
        _scaled_grouped_mm_v2 _scaled_mm_v2 _foreach_mm _euclidean_dist _cdist_forward
        _cdist_backward linear matmul matmul_backward linear_backward mkldnn_linear
        mkldnn_linear_backward mkldnn_linear_backward_input mkldnn_linear_backward_weights""",
    "quantised products": """
        _mixed_dtypes_linear _dyn_quant_matmul_4bit _weight_int4pack_mm
        _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros _weight_int8pack_mm
        fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation
        fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation
        _wrapped_quantized_linear_prepacked""",
    "sparse products": """
        _sparse_addmm _sparse_mm_reduce_impl _sparse_mm_reduce_impl_backward _sparse_sparse_matmul
        _spsolve hspmm sspaddmm sparse_sampled_addmm _cslt_sparse_mm _cslt_sparse_mm_search
        _sparse_semi_structured_addmm _sparse_semi_structured_linear _sparse_semi_structured_mm""",
    "convolutions in kernels of their own": """
        _convolution convolution_overrideable convolution_backward_overrideable conv_tbc
        conv_tbc_backward conv_depthwise3d _conv_depthwise2d _slow_conv2d_forward
        _slow_conv2d_backward slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d
        slow_conv_transpose2d slow_conv_transpose3d _nnpack_spatial_convolution mkldnn_convolution
        cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu
        cudnn_convolution_add_relu miopen_convolution miopen_convolution_transpose
        miopen_convolution_relu miopen_convolution_add_relu miopen_depthwise_convolution
        _mps_convolution _mps_convolution_transpose mps_convolution_backward
        mps_convolution_transpose_backward""",
    "decompositions and solutions, which are cuSOLVER's or MAGMA's on a GPU": """
        _cholesky_solve_helper _compute_linear_combination _linalg_det _linalg_eigh
        _linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky cholesky_inverse
        cholesky_solve geqrf linalg_cholesky_ex linalg_eig linalg_householder_product
        linalg_eigvals linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu
        linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_pinv linalg_qr
        linalg_solve_triangular ormqr triangular_solve""",
    "Fourier transforms, which are cuFFT's on a GPU": "_fft_c2c _fft_c2r _fft_r2c",
}

#: operators that PyTorch makes of others before the mode can see them: a GPU runs a kernel for the
#: whole, or the CPU's code multiplies out of sight
COMPOSITES = (
    "scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu",
    "quantized_lstm_cell", "quantized_gru_cell", "quantized_rnn_tanh_cell",
    "quantized_rnn_relu_cell", "fbgemm_linear_fp16_weight",
    "fbgemm_linear_fp16_weight_fp32_activation", "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation", "_wrapped_quantized_linear_prepacked",
    "sspaddmm", "conv_tbc_backward",
)  # fmt: skip

#: spaces of operators that multiply nothing; of all others but aten's it is not known
NO_PRODUCTS = ("profiler", "c10d", "_c10d_functional", "_c10d_functional_autograd")


@cache
def unknown_kind(name: str) -> str:
    """The kind of an operator of aten whose bits are not known; "" for any other."""
    return next((kind for kind, names in UNKNOWN.items() if name in names.split()), "")
