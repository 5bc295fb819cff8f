// All layers, and the operations that they are made of: a file of nn/layers/ has a family, both of its forms.
//
// An operation is a function of tensors: it runs its kernels on the input's device and records how to go
// back. Activations are NHWC; a row is one image. They are float32 or bfloat16: what an operation makes has
// the type of its input, and is computed in float32. linear and conv2d alone choose: their output is bfloat16
// where the device's precision is bf16, else float32, and their input is cast to that. Parameters, statistics
// and losses are float32 (a weight may be bfloat16, a norm's or a bias may not); a gradient has the type of
// what it is the gradient of.
//
// Backward reads what forward read, where it lies: who overwrites an input, a weight, the output of an
// activation or the running mean of a batch norm in evaluation before it gets an error (core/autograd.h).
//
// A layer is a module around its operation. Weights start as zeros; nn/init.h fills them.
#pragma once

#include "nn/layers/activation.h"
#include "nn/layers/add.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/cast.h"
#include "nn/layers/conv2d.h"
#include "nn/layers/cross_entropy.h"
#include "nn/layers/dropout.h"
#include "nn/layers/flatten.h"
#include "nn/layers/linear.h"
#include "nn/layers/pool.h"
#include "nn/layers/residual.h"
