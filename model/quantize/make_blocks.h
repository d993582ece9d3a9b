// Makes one block of each quantised type, byte by byte as base/quantized_blocks.h has it. Internal
// to model/quantize.
#pragma once

#include <cstdint>

#include "model/quantize/block_fits.h"

namespace skein::model {

using Block = Weighted<32>;
using Superblock = Weighted<256>;

void MakeQ4_0(Block in, uint8_t* out);
void MakeQ4_1(Block in, uint8_t* out);
void MakeQ5_0(Block in, uint8_t* out);
void MakeQ5_1(Block in, uint8_t* out);
void MakeQ8_0(Block in, uint8_t* out);
void MakeIq4Nl(Block in, uint8_t* out);

void MakeQ2_K(Superblock in, uint8_t* out);
void MakeQ3_K(Superblock in, uint8_t* out);
void MakeQ4_K(Superblock in, uint8_t* out);
void MakeQ5_K(Superblock in, uint8_t* out);
void MakeQ6_K(Superblock in, uint8_t* out);
void MakeIq4Xs(Superblock in, uint8_t* out);

}  // namespace skein::model
