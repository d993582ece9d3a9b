#include "model/synthetic/synthetic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counted_numbers.h"

namespace skein::model {
namespace {

constexpr std::string_view kPrefix = "synthetic:";

struct Preset {
  std::string_view name;
  int64_t num_layers;
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  int64_t vocab_size;
};

constexpr Preset kPresets[] = {
    {"llama3-1b", 16, 2048, 8192, 32, 8, 64, 128256},
    {"llama3-8b", 32, 4096, 14336, 32, 8, 128, 128256},
    {"llama3-70b", 80, 8192, 28672, 64, 8, 128, 128256},
    {"tiny", 8, 128, 256, 8, 4, 16, 512},
};

ModelConfig ConfigOf(const Preset& preset) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = preset.vocab_size;
  config.hidden_size = preset.hidden_size;
  config.intermediate_size = preset.intermediate_size;
  config.num_layers = preset.num_layers;
  config.num_heads = preset.num_heads;
  config.num_kv_heads = preset.num_kv_heads;
  config.head_dim = preset.head_dim;
  config.max_position_embeddings = 8192;
  config.rope.theta = 500000.0;
  config.dtype = DType::kBF16;
  return config;
}

std::vector<TensorInfo> SortedTensors(const ModelConfig& config, std::optional<DType> matrices) {
  std::vector<TensorInfo> tensors;
  for (NamedShape& tensor : TensorsOf(config)) {
    const bool fits = matrices.has_value() && tensor.shape.size() == 2 &&
                      tensor.shape[1] % BlockElements(*matrices) == 0;
    tensors.push_back(
        {std::move(tensor.name), fits ? *matrices : config.dtype, std::move(tensor.shape)});
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return tensors;
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// The weight of every byte, as stored. Both kinds of values are exact in T.
template <typename T>
std::array<T, 256> MakeTable(T (*store)(float), bool norm) {
  std::array<T, 256> table;
  for (int byte = 0; byte < 256; ++byte) {
    const float value = norm ? 1.0f + static_cast<float>(byte % 16) / 128.0f
                             : NumberOfByte(static_cast<uint8_t>(byte));
    table[static_cast<size_t>(byte)] = store(value);
  }
  return table;
}

// Elements [first, first + count) of the tensor with this seed.
template <typename T>
void Fill(const std::array<T, 256>& table, uint64_t seed, uint64_t first, uint64_t count,
          std::byte* out) {
  const uint64_t end = first + count;
  uint64_t i = first;
  const auto one = [&](uint64_t index) {
    const T value = table[SplitMix64(seed, index / 8) >> (8 * (index % 8)) & 255];
    std::memcpy(out, &value, sizeof(T));
    out += sizeof(T);
  };
  for (; i < end && i % 8 != 0; ++i) one(i);
  for (; i + 8 <= end; i += 8, out += 8 * sizeof(T)) {
    const uint64_t word = SplitMix64(seed, i / 8);
    for (int j = 0; j < 8; ++j) {
      std::memcpy(out + j * sizeof(T), &table[word >> (8 * j) & 255], sizeof(T));
    }
  }
  for (; i < end; ++i) one(i);
}

// A scale or minimum of a block, at this byte of it.
struct BlockFloat {
  size_t offset = 0;
  float value = 0;
};

// Those of a type, in F16 or, of what other checkpoints hold, in F32: weights are within ±0.12.
std::vector<BlockFloat> FloatsOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {{0, 0x1p-8f}};
    case DType::kQ4_1:
      return {{0, 0x1p-8f}, {2, -0x1p-5f}};
    case DType::kQ5_0:
      return {{0, 0x1p-9f}};
    case DType::kQ5_1:
      return {{0, 0x1p-9f}, {2, -0x1p-5f}};
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kFp8:
    case DType::kInt8:
      return {{0, 0x1p-12f}};
    case DType::kInt4:
      return {{0, 0x1p-8f}};
    case DType::kQ2_K:
      return {{80, 0x1p-11f}, {82, 0x1p-10f}};
    case DType::kQ3_K:
      return {{108, 0x1p-12f}};
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {{0, 0x1p-14f}, {2, 0x1p-11f}};
    case DType::kQ6_K:
      return {{208, 0x1p-17f}};
    case DType::kIQ4_XS:
      return {{0, 0x1p-17f}};
    default:
      return {};
  }
}

void FillBlock(DType dtype, uint64_t seed, uint64_t block, std::byte* out) {
  const int64_t bytes = BlockBytes(dtype);
  const auto words = static_cast<uint64_t>((bytes + 7) / 8);
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t word = SplitMix64(seed, block * words + static_cast<uint64_t>(i / 8));
    std::memcpy(out + i, &word, static_cast<size_t>(std::min<int64_t>(8, bytes - i)));
  }
  const bool wide = dtype == DType::kFp8 || dtype == DType::kInt8 || dtype == DType::kInt4;
  for (const BlockFloat& of : FloatsOf(dtype)) {
    const uint16_t half = FloatToF16(of.value);
    std::memcpy(out + of.offset, wide ? static_cast<const void*>(&of.value) : &half,
                wide ? sizeof(of.value) : sizeof(half));
  }
  if (dtype == DType::kInt4) out[0] = std::byte{8};  // the zero point
  if (dtype != DType::kFp8) return;
  for (int64_t i = sizeof(float); i < bytes; ++i) {
    if (IsE4M3Nan(static_cast<uint8_t>(out[i]))) out[i] = std::byte{0};
  }
}

class SyntheticSource final : public TensorSource {
 public:
  SyntheticSource(const ModelConfig& config, std::string description, std::optional<DType> matrices)
      : description_(std::move(description)), tensors_(SortedTensors(config, matrices)) {}

  std::string_view description() const override { return description_; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }
  std::optional<CountedRows> Counted(const TensorInfo& tensor) const override {
    if (tensor.shape.size() != 2 || IsQuantized(tensor.dtype)) return std::nullopt;
    return CountedRows{.seed = Fnv1a(tensor.name), .stride = tensor.shape[1]};
  }

 protected:
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    switch (tensor.dtype) {
      case DType::kF32:
        FillSlice<float>([](float value) { return value; }, tensor, slice, out);
        return absl::OkStatus();
      case DType::kF16:
        FillSlice<uint16_t>(FloatToF16, tensor, slice, out);
        return absl::OkStatus();
      case DType::kBF16:
        FillSlice<uint16_t>(FloatToBf16, tensor, slice, out);
        return absl::OkStatus();
      default:
        break;
    }
    if (!IsQuantized(tensor.dtype)) {
      return absl::UnimplementedError("synthetic weights are F32, F16, BF16 or quantised");
    }
    FillSliceOfBlocks(tensor, slice, out);
    return absl::OkStatus();
  }

 private:
  // Tensors are vectors and matrices.
  template <typename T>
  static void FillSlice(T (*store)(float), const TensorInfo& tensor, absl::Span<const Range> slice,
                        absl::Span<std::byte> out) {
    const bool vector = tensor.shape.size() == 1;
    const std::array<T, 256> table = MakeTable<T>(store, vector);
    const uint64_t seed = Fnv1a(tensor.name);
    const Range rows = vector ? Range{0, 1} : slice[0];
    const Range columns = slice.back();
    const int64_t width = tensor.shape.back();
    std::byte* to = out.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      Fill<T>(table, seed, static_cast<uint64_t>(row * width + columns.begin),
              static_cast<uint64_t>(columns.size()), to);
      to += static_cast<size_t>(columns.size()) * sizeof(T);
    }
  }

  static void FillSliceOfBlocks(const TensorInfo& tensor, absl::Span<const Range> slice,
                                absl::Span<std::byte> out) {
    const int64_t elements = BlockElements(tensor.dtype);
    const uint64_t seed = Fnv1a(tensor.name);
    std::byte* to = out.data();
    for (int64_t row = slice[0].begin; row < slice[0].end; ++row) {
      const int64_t first = row * tensor.shape[1] / elements;
      for (int64_t block = first + slice[1].begin / elements;
           block < first + slice[1].end / elements; ++block) {
        FillBlock(tensor.dtype, seed, static_cast<uint64_t>(block), to);
        to += BlockBytes(tensor.dtype);
      }
    }
  }

  const std::string description_;
  const std::vector<TensorInfo> tensors_;
};

}  // namespace

bool IsSyntheticSpec(std::string_view model) { return model.substr(0, kPrefix.size()) == kPrefix; }

absl::StatusOr<SyntheticModel> ParseSyntheticSpec(std::string_view spec) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (IsSyntheticSpec(spec) && spec.substr(kPrefix.size()) == preset.name) {
      const ModelConfig config = ConfigOf(preset);
      return SyntheticModel{config, MakeSyntheticWeights(config, std::string(spec))};
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(kPrefix),
                    std::string(preset.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(spec), "' is no synthetic model; there are ", known));
}

std::unique_ptr<TensorSource> MakeSyntheticWeights(const ModelConfig& config,
                                                   std::string description,
                                                   std::optional<DType> matrices) {
  return std::make_unique<SyntheticSource>(config, std::move(description), matrices);
}

}  // namespace skein::model
