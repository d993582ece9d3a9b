// The rows of bench_kernels, by what they time. Each runs only if Bench::Wants() its name.
#pragma once

#include "kernels/cuda/bench_harness.h"

namespace skein::kernels::cuda {

void BenchProducts(Bench& bench);
void BenchAttention(Bench& bench);  // with RoPE and the cache's write
void BenchElementwise(Bench& bench);
void BenchDraws(Bench& bench);

}  // namespace skein::kernels::cuda
