#include "model/config/quantization_config.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "model/config/field_reader.h"

namespace skein::model {
namespace {

using nlohmann::json;
using Method = QuantizationConfig::Method;

constexpr int64_t kMaxFileBytes = 16 << 20;
constexpr int64_t kMostTile = 1 << 20;

// Fails where the field says another text than `only`, which is also what an absent one means.
void OnlyString(FieldReader& reader, const char* field, const std::string& only) {
  std::string said = only;
  reader.String(field, &said);
  if (absl::AsciiStrToLower(said) != only)
    reader.FailUnimplemented(field, absl::StrCat("Skein reads ", only));
}

void ReadTile(FieldReader& reader, const char* field, QuantizationConfig& config) {
  if (!reader.Has(field)) return;
  const json& sizes = reader.Get(field);
  const auto is_size = [](const json& size) {
    return size.is_number_integer() && size >= 1 && size <= kMostTile;
  };
  if (!sizes.is_array() || sizes.size() != 2 || !is_size(sizes[0]) || !is_size(sizes[1])) {
    return reader.FailField(field, "must be two numbers, of rows and of columns");
  }
  config.tile_rows = sizes[0];
  config.tile_cols = sizes[1];
}

void ReadFp8(FieldReader& reader, QuantizationConfig& config) {
  OnlyString(reader, "fmt", "e4m3");
  ReadTile(reader, "weight_block_size", config);
}

void OnlyFourBits(FieldReader& reader) {
  int64_t bits = 4;
  reader.RequiredInt("bits", 1, 64, &bits);
  if (bits != 4) reader.FailUnimplemented("bits", "Skein reads 4 bits");
}

// -1 stands for a whole row.
void ReadGroupSize(FieldReader& reader, QuantizationConfig& config) {
  int64_t size = -1;
  reader.Int("group_size", -1, kMostTile, &size);
  config.group_cols = std::max<int64_t>(size, 0);
}

void ReadAwq(FieldReader& reader, QuantizationConfig& config) {
  OnlyFourBits(reader);
  ReadGroupSize(reader, config);
  OnlyString(reader, "version", "gemm");
  OnlyString(reader, "format", "gemm");
}

void ReadGptq(FieldReader& reader, QuantizationConfig& config) {
  OnlyFourBits(reader);
  ReadGroupSize(reader, config);
  // Newer files say `format`, older ones `checkpoint_format`.
  std::string format = "gptq";
  for (const char* field : {"checkpoint_format", "format"}) {
    reader.String(field, &format);
    format = absl::AsciiStrToLower(format);
    if (format != "gptq" && format != "gptq_v2") {
      reader.FailUnimplemented(field, "Skein reads gptq and gptq_v2");
    }
  }
  config.added_zero = format == "gptq" ? 1 : 0;
}

// The weights of a group of compressed-tensors.
void ReadGroupWeights(FieldReader& reader, QuantizationConfig& config) {
  int64_t bits = 8;
  std::string type = "int";
  bool symmetric = true;
  reader.Int("num_bits", 1, 64, &bits);
  reader.String("type", &type);
  reader.Bool("symmetric", &symmetric);
  ReadTile(reader, "block_structure", config);
  if ((type != "int" && type != "float") || bits != (type == "int" && bits == 4 ? 4 : 8)) {
    reader.FailUnimplemented("num_bits", absl::StrCat("with type ", type,
                                                      ", Skein reads int of 4 and 8 bits and "
                                                      "float of 8"));
  }
  if (bits == 8 && !symmetric) {
    reader.FailUnimplemented("symmetric", "Skein reads 8 bits without zero points");
  }
}

void ReadCompressedTensors(FieldReader& reader, QuantizationConfig& config) {
  const auto object = [](FieldReader& of, const char* field, auto read) {
    if (of.Has(field)) of.Object(field, read);
  };
  object(reader, "sparsity_config",
         [](FieldReader& sparsity) { OnlyString(sparsity, "format", "dense"); });
  if (reader.Has("transform_config") && !reader.Get("transform_config").empty()) {
    reader.FailUnimplemented("transform_config", "Skein runs models without transforms");
  }
  object(reader, "config_groups", [&](FieldReader& groups) {
    for (const auto& item : groups.object().items()) {
      groups.Object(item.key().c_str(), [&](FieldReader& group) {
        object(group, "weights",
               [&config](FieldReader& weights) { ReadGroupWeights(weights, config); });
      });
    }
  });
}

void ReadMethod(FieldReader& reader, QuantizationConfig& config) {
  std::string method;
  reader.String("quant_method", &method);
  if (method == "fp8" || method == "fbgemm_fp8") {
    config.method = Method::kFp8;
    ReadFp8(reader, config);
  } else if (method == "awq") {
    config.method = Method::kAwq;
    ReadAwq(reader, config);
  } else if (method == "gptq") {
    config.method = Method::kGptq;
    ReadGptq(reader, config);
  } else if (method == "compressed-tensors") {
    config.method = Method::kCompressedTensors;
    ReadCompressedTensors(reader, config);
  } else {
    reader.FailUnimplemented("quant_method",
                             "Skein reads awq, gptq, fp8, fbgemm_fp8 and compressed-tensors");
  }
}

}  // namespace

absl::StatusOr<std::optional<QuantizationConfig>> ReadQuantizationConfig(const json& config) {
  FieldReader reader(config);
  for (const char* field : {"quantization_config", "compression_config"}) {
    if (!reader.Has(field)) continue;
    QuantizationConfig read;
    reader.Object(field, [&read](FieldReader& object) { ReadMethod(object, read); });
    SKEIN_RETURN_IF_ERROR(reader.status());
    return read;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<QuantizationConfig>> LoadQuantizationConfig(
    const std::string& folder) {
  const std::string path = folder + "/config.json";
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<json> config = ParseJson(*text);
  if (!config.ok() || !config->is_object()) return std::nullopt;
  auto read = ReadQuantizationConfig(*config);
  if (!read.ok()) return Annotate(read.status(), path);
  return read;
}

}  // namespace skein::model
