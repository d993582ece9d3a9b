// The names of tensors in GGUF files and in Hugging Face's folders. Internal to model/format,
// model/convert and model/quantize.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace skein::model {

// More experts than any layer has.
inline constexpr int64_t kMaxExperts = 4096;

struct GgufName {
  std::string_view gguf;
  std::string_view hugging_face;
};

// In what files of an architecture are unlike Llama's.
struct GgufDialect {
  std::string_view architecture;
  bool interleaved = false;  // a head's rows of queries and keys lie in pairs
  absl::Span<const GgufName> layer_names = {};
  std::string_view experts = "mlp.experts.";  // a layer's, before an expert's number
  absl::Span<const GgufName> of_each_expert;
};

GgufDialect GgufDialectOf(std::string_view architecture);

// "blk.3.attn_q.weight" as "3" and "attn_q.weight"; nullopt: of no layer.
struct GgufLayerName {
  std::string_view layer;
  std::string_view tensor;
};
std::optional<GgufLayerName> SplitGgufName(std::string_view gguf);

// A tensor of a layer that has no counterpart keeps its name behind the layer's, so that checks
// find it in the network.
std::string HuggingFaceName(const GgufDialect& dialect, std::string_view gguf);

// What of each expert a tensor of all of a layer's experts holds ("gate_proj.weight"); empty: it is
// none. `tensor` is behind the layer's name.
std::string_view OfEachExpert(const GgufDialect& dialect, std::string_view tensor);

// The tensor's name in files, and the expert whose part it is there (-1: it is whole). nullopt:
// files have no name for it.
struct GgufPlace {
  std::string name;
  int64_t expert = -1;
};
std::optional<GgufPlace> GgufPlaceOf(const GgufDialect& dialect, std::string_view hugging_face);

// Queries and keys of a layer, which are interleaved where the dialect says so.
bool IsInterleaved(const GgufDialect& dialect, std::string_view gguf);

}  // namespace skein::model
