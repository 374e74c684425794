// The functions of libtorch's stable C interface that are used here, declared again: its own header takes four seconds
// to compile. (torch/csrc/inductor/aoti_torch/c/shim.h; torch promises to keep these functions.)
#pragma once

#include <cstdint>

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;

extern "C" {
const char* torch_exception_get_what_without_backtrace() __attribute__((weak));  // from torch 2.12 on
int32_t aoti_torch_delete_tensor_object(AtenTensorHandle);
int32_t aoti_torch_new_tensor_handle(AtenTensorHandle, AtenTensorHandle*);
int32_t aoti_torch_get_data_ptr(AtenTensorHandle, void**);
int32_t aoti_torch_get_storage_offset(AtenTensorHandle, int64_t*);
int32_t aoti_torch_get_dim(AtenTensorHandle, int64_t*);
int32_t aoti_torch_get_numel(AtenTensorHandle, int64_t*);
int32_t aoti_torch_get_sizes(AtenTensorHandle, int64_t**);
int32_t aoti_torch_get_strides(AtenTensorHandle, int64_t**);
int32_t aoti_torch_get_dtype(AtenTensorHandle, int32_t*);
int32_t aoti_torch_get_device_type(AtenTensorHandle, int32_t*);
int32_t aoti_torch_get_device_index(AtenTensorHandle, int32_t*);
int32_t aoti_torch_is_contiguous(AtenTensorHandle, bool*);
int32_t aoti_torch_is_defined(AtenTensorHandle, bool*);
int32_t aoti_torch_clone(AtenTensorHandle, AtenTensorHandle*);
int32_t aoti_torch_copy_(AtenTensorHandle, AtenTensorHandle, int32_t);
int32_t aoti_torch_zero_(AtenTensorHandle);
int32_t aoti_torch_empty_strided(
    int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, AtenTensorHandle*);
int32_t aoti_torch_create_tensor_from_blob(
    void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t, AtenTensorHandle*);
int32_t torch_from_blob(void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t,
    AtenTensorHandle*, int32_t, const uint8_t*, int64_t, void (*)(void*, void*), void*);  // from torch 2.11 on
int32_t aoti_torch_get_current_cuda_stream(int32_t, void**);
int32_t aoti_torch_get_current_device_index(int32_t*);
bool aoti_torch_grad_mode_is_enabled();
void aoti_torch_grad_mode_set_enabled(bool);
}
