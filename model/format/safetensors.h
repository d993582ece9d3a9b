// Tensors of safetensors files: one, or the shards of a folder. See safetensors_header.h for the
// layout of a file, and file.h for why it is read by pread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/format/tensor_source.h"

namespace skein::model {

// A .safetensors file, or a folder that holds model.safetensors or else
// model.safetensors.index.json, whose "weight_map" names the shard of every tensor. The index and
// the shards' headers must agree exactly: each mapped tensor is in its shard, each shard's tensors
// are mapped to it, and a shard's name is that of a file in the folder, not a path.
//
// Tensors may be of the types that quantised checkpoints are stored in (quantized_weights.h).
//
// Reads the headers now; the source keeps the files open. Reads cost a copy out of the page cache
// and, for slices that are not whole rows, up to 1 MiB of memory during the call. Errors name file,
// tensor, offset and reason; a file that shrinks later makes Read answer DataLoss.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(const std::string& folder_or_file);

}  // namespace skein::model
