#include "model/format/quantized_weights.h"

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "model/format/open.h"

namespace skein::model {
namespace {

using ::testing::HasSubstr;
using Method = QuantizationConfig::Method;

absl::StatusOr<std::vector<std::byte>> ReadSlice(const TensorSource& source,
                                                 const TensorInfo& tensor, Range rows, Range cols) {
  std::vector<std::byte> bytes(
      static_cast<size_t>(DTypeBytes(tensor.dtype, rows.size() * cols.size())));
  absl::Status status = source.Read(tensor, {{rows, cols}}, absl::MakeSpan(bytes));
  if (!status.ok()) return status;
  return bytes;
}

std::vector<float> Floats(const TensorInfo& tensor, const std::vector<std::byte>& bytes) {
  const int64_t count =
      static_cast<int64_t>(bytes.size()) / BlockBytes(tensor.dtype) * BlockElements(tensor.dtype);
  std::vector<float> values(static_cast<size_t>(count));
  ConvertToFloat(tensor.dtype, bytes.data(), count, values.data());
  return values;
}

// Rows of matrices that tests/golden/make_quantized.py dequantised by numpy.
class GoldenRows {
 public:
  GoldenRows() : data_("tests/golden/quantized_rows.f32", std::ios::binary) {
    std::ifstream index("tests/golden/quantized_rows.json");
    matrices_ = nlohmann::json::parse(index).at("matrices");
  }

  const nlohmann::json& matrices() const { return matrices_; }

  std::vector<float> RowsOf(const nlohmann::json& matrix) {
    std::vector<float> values(matrix.at("rows").size() * matrix.at("cols").get<size_t>());
    data_.seekg(matrix.at("offset_bytes").get<int64_t>());
    data_.read(reinterpret_cast<char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    EXPECT_TRUE(data_.good());
    return values;
  }

 private:
  std::ifstream data_;
  nlohmann::json matrices_;
};

TEST(QuantizedWeightsTest, ValuesAreThoseOfAnotherProgram) {
  GoldenRows golden;
  std::map<std::string, std::unique_ptr<TensorSource>> sources;
  for (const nlohmann::json& matrix : golden.matrices()) {
    const std::string model = matrix.at("model");
    const std::string name = matrix.at("tensor");
    SCOPED_TRACE(absl::StrCat(model, " ", name));
    if (!sources.contains(model)) {
      SKEIN_ASSERT_OK_AND_ASSIGN(sources[model], OpenTensorSource(model));
    }
    SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* tensor, sources[model]->Find(name));
    const int64_t cols = matrix.at("cols");
    ASSERT_EQ(tensor->shape[1], cols);
    std::vector<float> values;
    for (const int64_t row : matrix.at("rows")) {
      SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> bytes,
                                 ReadSlice(*sources[model], *tensor, {row, row + 1}, {0, cols}));
      const std::vector<float> of_row = Floats(*tensor, bytes);
      values.insert(values.end(), of_row.begin(), of_row.end());
    }
    EXPECT_EQ(values, golden.RowsOf(matrix));
  }
  ASSERT_EQ(sources.size(), 10u);
  std::map<DType, int> models;
  for (const auto& [model, source] : sources) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* tensor,
                               source->Find("model.layers.0.mlp.down_proj.weight"));
    ++models[tensor->dtype];
  }
  EXPECT_EQ(models, (std::map<DType, int>{
                        {DType::kF16, 2}, {DType::kFp8, 3}, {DType::kInt8, 2}, {DType::kInt4, 3}}));
}

// Any slice is what the whole has there.
TEST(QuantizedWeightsTest, SlicesAreThoseOfTheWhole) {
  for (const char* model : {"fp8-tensor", "fp8-channel", "fp8-tiles", "int8-channel", "int8-words",
                            "int4-words", "int4-order", "awq", "gptq", "gptq-order"}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(auto source,
                               OpenTensorSource(absl::StrCat("tests/golden/models/", model)));
    SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* tensor,
                               source->Find("model.layers.0.mlp.down_proj.weight"));
    const int64_t rows = tensor->shape[0];
    const int64_t cols = tensor->shape[1];
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto bytes, ReadSlice(*source, *tensor, {0, rows}, {0, cols}));
    const std::vector<float> whole = Floats(*tensor, bytes);
    for (const Range of_rows : {Range{0, 1}, Range{3, 21}, Range{rows - 1, rows}}) {
      for (const Range of_cols : {Range{0, 32}, Range{32, 160}, Range{96, cols}}) {
        SKEIN_ASSERT_OK_AND_ASSIGN(const auto slice, ReadSlice(*source, *tensor, of_rows, of_cols));
        std::vector<float> expected;
        for (int64_t row = of_rows.begin; row < of_rows.end; ++row) {
          const float* from = whole.data() + row * cols;
          expected.insert(expected.end(), from + of_cols.begin, from + of_cols.end);
        }
        EXPECT_EQ(Floats(*tensor, slice), expected) << model;
      }
    }
  }
}

// Tensors in memory, zeros but for what a test sets.
class MemorySource final : public TensorSource {
 public:
  struct Tensor {
    TensorInfo info;
    std::string bytes = {};
  };

  explicit MemorySource(std::vector<Tensor> tensors) {
    std::map<std::string, Tensor> sorted;
    for (Tensor& tensor : tensors) sorted[tensor.info.name] = tensor;
    for (auto& [name, tensor] : sorted) {
      tensors_.push_back(tensor.info);
      tensor.bytes.resize(
          static_cast<size_t>(DTypeBytes(tensor.info.dtype, tensor.info.elements())));
      bytes_.push_back(tensor.bytes);
    }
  }

  std::string_view description() const override { return "memory"; }
  absl::Span<const TensorInfo> tensors() const override { return tensors_; }

 protected:
  // Tests read whole tensors, or what is zero.
  absl::Status ReadChecked(const TensorInfo& tensor, absl::Span<const Range>,
                           absl::Span<std::byte> out) const override {
    const std::string& bytes = bytes_[static_cast<size_t>(&tensor - tensors_.data())];
    std::memcpy(out.data(), bytes.data(), out.size());
    return absl::OkStatus();
  }

 private:
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> bytes_;
};

std::string Word64(int64_t a, int64_t b) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &a, 8);
  std::memcpy(bytes.data() + 8, &b, 8);
  return bytes;
}

TEST(QuantizedWeightsTest, WhatDoesNotFitTogetherIsRefused) {
  const MemorySource::Tensor fp8 = {{"x.weight", DType::kF8E4M3, {64, 96}}};
  const MemorySource::Tensor words = {{"x.weight_packed", DType::kI32, {64, 12}}};
  const MemorySource::Tensor shape = {{"x.weight_shape", DType::kI64, {2}}, Word64(64, 96)};
  const MemorySource::Tensor scale = {{"x.weight_scale", DType::kF16, {64, 3}}};
  const MemorySource::Tensor qweight = {{"x.qweight", DType::kI32, {12, 64}}};
  const MemorySource::Tensor qzeros = {{"x.qzeros", DType::kI32, {3, 8}}};
  const MemorySource::Tensor scales = {{"x.scales", DType::kF16, {3, 64}}};
  const struct {
    std::vector<MemorySource::Tensor> tensors;
    const char* says;
    Method method = Method::kCompressedTensors;
    int64_t tile = 0;
    int64_t group = 0;
  } kCases[] = {
      {{fp8}, "no tensor 'x.weight_scale'"},
      {{fp8, {{"x.weight_scale", DType::kF32, {63, 1}}}}, "are no scales of [64, 96]"},
      {{fp8, {{"x.weight_scale", DType::kF32, {64, 5}}}}, "are no scales of [64, 96]"},
      {{fp8, {{"x.weight_scale", DType::kI32, {1}}}}, "must be F32, F16 or BF16"},
      {{fp8, {{"x.weight_scale", DType::kF32, {1, 1, 64}}}}, "one or two dimensions"},
      {{fp8, {{"x.weight_scale_inv", DType::kF32, {2, 2}}}}, "are no scales", Method::kFp8},
      {{fp8, {{"x.weight_scale_inv", DType::kF32, {2, 3}}}},
       "are no scales of [64, 96] in tiles of 64 x 64",
       Method::kFp8,
       64},
      {{fp8, {{"x.weight_scale", DType::kF32, {64, 6}}}}, "groups of 16 columns"},
      {{{{"x.weight", DType::kF8E4M3, {64, 90}}}, {{"x.weight_scale", DType::kF32, {1}}}},
       "has 90 columns; Skein reads multiples of 32"},
      {{{{"x.weight", DType::kI8, {64}}}}, "must be a matrix"},
      {{words, scale}, "no tensor 'x.weight_shape'"},
      {{words, shape}, "no tensor 'x.weight_scale'"},
      {{words, scale, {{"x.weight_shape", DType::kI64, {2}}, Word64(64, 64)}},
       "holds no numbers of 4 or 8 bits of [64, 64]"},
      {{words, scale, {{"x.weight_shape", DType::kI64, {2}}, Word64(int64_t{1} << 62, 96)}},
       "holds no numbers"},
      {{words, scale, {{"x.weight_shape", DType::kI32, {2}}}}, "must be I64 [2]"},
      {{words, shape, scale, {{"x.weight_zero_point", DType::kI32, {8, 2}}}}, "must be I32 [8, 3]"},
      {{words, shape, scale, {{"x.weight_g_idx", DType::kI32, {95}}}}, "must be I32 [96]"},
      {{words, shape, scale, {{"x.weight_g_idx", DType::kI32, {96}}, std::string(1, 3)}},
       "says group 3 of column 0, of 3"},
      {{{{"x.weight_packed", DType::kI32, {64, 24}}},
        shape,
        scale,
        {{"x.weight_zero_point", DType::kI32, {8, 3}}}},
       "is of 8 bits"},
      {{{{"x.weight_packed", DType::kF32, {64, 12}}}, shape, scale}, "must be a matrix of I32"},
      {{qweight, qzeros}, "no tensor 'x.scales'", Method::kGptq},
      {{qweight, scales}, "no tensor 'x.qzeros'", Method::kGptq},
      {{{{"x.qweight", DType::kI32, {96, 12}}}, qzeros, scales},
       "'x.qweight', I32 [96, 12], must be I32 [96, 8]",
       Method::kAwq},
      {{qweight, scales, {{"x.qzeros", DType::kI32, {3, 7}}}}, "must be I32 [3, 8]", Method::kGptq},
      {{qweight, qzeros, {{"x.scales", DType::kF16, {64}}}}, "[groups, rows]", Method::kGptq},
      {{qweight, {{"x.qzeros", DType::kI32, {4, 8}}}, {{"x.scales", DType::kF16, {4, 64}}}},
       "has 4 groups of 96 columns",
       Method::kGptq},
      {{qweight, {{"x.qzeros", DType::kI32, {3, 7}}}, {{"x.scales", DType::kF16, {3, 60}}}},
       "multiple of 8 rows",
       Method::kGptq},
      {{qweight, qzeros, scales, {{"x.g_idx", DType::kI32, {96}}, std::string(4, '\xff')}},
       "says group -1 of column 0",
       Method::kGptq},
      {{{{"y", DType::kI64, {1}}}}, "tensor 'y' is stored as I64"},
      {{{{"x.weight", DType::kI8, {64, 96}}},
        scale,
        {{"x.weight_zero_point", DType::kI8, {64, 3}}}},
       "is of a matrix of bytes; Skein reads those without"},
      {{{{"x.weight", DType::kF8E4M3, {0, 96}}}, {{"x.weight_scale", DType::kF32, {0, 1}}}},
       "'x.weight' has no rows"},
      {{qweight, qzeros, scales},
       "has 3 groups of 96 columns, of which config.json has 64 each",
       Method::kGptq,
       0,
       64},
      {{fp8, words, shape, scale}, "tensor 'x.weight' is there in two forms"},
      {{qweight, qzeros, scales, {{"x.weight", DType::kF16, {64, 96}}}},
       "tensor 'x.weight' is there in two forms",
       Method::kGptq},
      {{qweight, qzeros, scales}, "tensor 'x.qweight' is stored as I32", Method::kFp8},
      {{words, shape, scale}, "tensor 'x.weight_packed' is stored as I32", Method::kAwq},
  };
  for (const auto& c : kCases) {
    const QuantizationConfig config = {
        .method = c.method, .tile_rows = c.tile, .tile_cols = c.tile, .group_cols = c.group};
    const absl::Status status =
        AsBlockWeights(std::make_unique<MemorySource>(c.tensors), config).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
    EXPECT_THAT(std::string(status.message()), HasSubstr("memory: "));
  }
}

TEST(QuantizedWeightsTest, WhatBlocksCannotSayIsRefusedAsItIsRead) {
  auto source =
      AsBlockWeights(std::make_unique<MemorySource>(std::vector<MemorySource::Tensor>{
                         {{"x.weight", DType::kF8E4M3, {1, 32}}, std::string(5, '\0') + "\xff"},
                         {{"x.weight_scale", DType::kF32, {1}}}}),
                     QuantizationConfig{});
  SKEIN_ASSERT_OK(source);
  EXPECT_THAT(ReadSlice(**source, (*source)->tensors()[0], {0, 1}, {0, 32}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("memory: tensor 'x.weight': holds a NaN at [0, 5]")));
  const float third = 1.0f / 3;
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &third, 4);
  source = AsBlockWeights(std::make_unique<MemorySource>(std::vector<MemorySource::Tensor>{
                              {{"x.qweight", DType::kI32, {4, 8}}},
                              {{"x.qzeros", DType::kI32, {1, 1}}},
                              {{"x.scales", DType::kF32, {1, 8}}, bytes}}),
                          QuantizationConfig{.method = Method::kGptq});
  SKEIN_ASSERT_OK(source);
  EXPECT_THAT(ReadSlice(**source, (*source)->tensors()[0], {0, 8}, {0, 32}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 16 bits")));
}

TEST(QuantizedWeightsTest, WithoutAConfigurationIntegersAreNoWeights) {
  EXPECT_THAT(AsBlockWeights(std::make_unique<MemorySource>(std::vector<MemorySource::Tensor>{
                                 {{"x.weight", DType::kF8E4M3, {64, 96}}}}),
                             std::nullopt),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("tensor 'x.weight' is stored as F8_E4M3; Skein reads")));
}

}  // namespace
}  // namespace skein::model
