#include "model/synthetic/synthetic.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/counted_numbers.h"
#include "base/test_util.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

template <typename T>
std::vector<T> ReadAs(const TensorSource& source, std::string_view name, std::vector<Range> slice) {
  const TensorInfo* tensor = source.Find(name).value();
  if (slice.empty()) {
    for (int64_t size : tensor->shape) slice.push_back({0, size});
  }
  int64_t elements = 1;
  for (const Range& range : slice) elements *= range.size();
  std::vector<T> out(static_cast<size_t>(DTypeBytes(tensor->dtype, elements)) / sizeof(T));
  SKEIN_EXPECT_OK(source.Read(*tensor, slice,
                              {reinterpret_cast<std::byte*>(out.data()), out.size() * sizeof(T)}));
  return out;
}

TEST(SyntheticTest, KnownValues) {
  const struct {
    const char* name;
    size_t elements;
    uint64_t sum;
    std::vector<uint16_t> first;
  } kCases[] = {
#include "model/synthetic/known_values.inc"
  };
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.name);
    const std::vector<uint16_t> bits = ReadAs<uint16_t>(*model.weights, test.name, {});
    ASSERT_EQ(bits.size(), test.elements);
    EXPECT_THAT(std::vector<uint16_t>(bits.begin(), bits.begin() + 9),
                ElementsAreArray(test.first));
    EXPECT_EQ(std::accumulate(bits.begin(), bits.end(), uint64_t{0}), test.sum);
  }
}

TEST(SyntheticTest, ASliceIsPartOfTheWhole) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  constexpr char kName[] = "model.layers.2.mlp.down_proj.weight";
  const std::vector<uint16_t> whole = ReadAs<uint16_t>(*model.weights, kName, {});
  std::mt19937 generator(3);
  for (int i = 0; i < 200; ++i) {
    const int64_t row_begin = generator() % 64;
    const int64_t column_begin = generator() % 128;
    const Range rows = {row_begin, row_begin + static_cast<int64_t>(generator() % 65)};
    const Range columns = {column_begin, column_begin + static_cast<int64_t>(generator() % 129)};
    std::vector<uint16_t> expected;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto begin = whole.begin() + row * 256;
      expected.insert(expected.end(), begin + columns.begin, begin + columns.end);
    }
    ASSERT_EQ(ReadAs<uint16_t>(*model.weights, kName, {rows, columns}), expected);
  }
}

// By the definition in synthetic.h, as whoever makes weights himself does.
TEST(SyntheticTest, CountedRowsAreWhatIsRead) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  int matrices = 0;
  for (const TensorInfo& tensor : model.weights->tensors()) {
    const std::optional<CountedRows> numbers = model.weights->Counted(tensor);
    ASSERT_EQ(numbers.has_value(), tensor.shape.size() == 2) << tensor.name;
    if (!numbers.has_value()) continue;
    ++matrices;
    const std::vector<uint16_t> bits = ReadAs<uint16_t>(*model.weights, tensor.name, {});
    for (const auto& [row, col] : {std::pair{0, 0}, {3, 77}, {63, 127}}) {
      const auto i = static_cast<uint64_t>(numbers->first + row * numbers->stride + col);
      const auto byte = static_cast<uint8_t>(SplitMix64(numbers->seed, i / 8) >> (8 * (i % 8)));
      EXPECT_EQ(Bf16ToFloat(bits[static_cast<size_t>(row * tensor.shape[1] + col)]),
                NumberOfByte(byte))
          << tensor.name;
    }
  }
  EXPECT_EQ(matrices, 2 + 8 * 7);
}

TEST(SyntheticTest, SameValuesInEveryDType) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  for (const char* name : {"lm_head.weight", "model.norm.weight"}) {
    std::vector<float> values;
    for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      model.config.dtype = dtype;
      const auto source = MakeSyntheticWeights(model.config, "test");
      std::vector<float> converted;
      if (dtype == DType::kF32) {
        converted = ReadAs<float>(*source, name, {});
      } else {
        const std::vector<uint16_t> bits = ReadAs<uint16_t>(*source, name, {});
        converted.resize(bits.size());
        ConvertToFloat(dtype, bits.data(), static_cast<int64_t>(bits.size()), converted.data());
      }
      if (values.empty()) values = converted;
      EXPECT_EQ(converted, values);
    }
  }
}

TEST(SyntheticTest, QuantisedMatricesAreSmallNumbersInEveryType) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  model.config.hidden_size = 512;
  using enum DType;
  constexpr const char* kName = "model.layers.1.mlp.up_proj.weight";
  for (const DType dtype : {kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,
                            kIQ4_NL, kIQ4_XS, kFp8, kInt8, kInt4}) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const auto source = MakeSyntheticWeights(model.config, "test", dtype);
    SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* const tensor, source->Find(kName));
    EXPECT_EQ(tensor->dtype, dtype);
    EXPECT_FALSE(source->Counted(*tensor).has_value());
    SKEIN_ASSERT_OK_AND_ASSIGN(const TensorInfo* const norm, source->Find("model.norm.weight"));
    EXPECT_EQ(norm->dtype, DType::kBF16);

    const std::vector<uint8_t> blocks = ReadAs<uint8_t>(*source, kName, {});
    const int64_t elements = tensor->elements();
    ASSERT_EQ(std::ssize(blocks), DTypeBytes(dtype, elements));
    std::vector<float> values(static_cast<size_t>(elements));
    ConvertToFloat(dtype, blocks.data(), elements, values.data());
    double squares = 0;
    for (const float value : values) {
      ASSERT_LT(std::abs(value), 0.13f);  // not NaN either
      squares += double{value} * value;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(elements));
    EXPECT_GT(deviation, 0.003);
    EXPECT_LT(deviation, 0.05);
    // A slice is a part of the whole.
    const std::vector<uint8_t> part = ReadAs<uint8_t>(*source, kName, {{3, 5}, {256, 512}});
    const int64_t row = DTypeBytes(dtype, 512), half = row / 2;
    std::vector<uint8_t> expected;
    for (const int64_t begin : {3 * row + half, 4 * row + half}) {
      expected.insert(expected.end(), blocks.begin() + begin, blocks.begin() + begin + half);
    }
    EXPECT_EQ(part, expected);
  }
}

TEST(SyntheticTest, MatricesAreSpreadAsModelsAreInitialised) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:llama3-1b"));
  const std::vector<uint16_t> bits = ReadAs<uint16_t>(
      *model.weights, "model.layers.15.mlp.up_proj.weight", {{1000, 1512}, {0, 2048}});
  double sum = 0.0;
  double squares = 0.0;
  for (uint16_t value : bits) {
    const double weight = Bf16ToFloat(value);
    sum += weight;
    squares += weight * weight;
  }
  const double count = static_cast<double>(bits.size());
  const double deviation = 1.0 / 8192 * std::sqrt((256.0 * 256.0 - 1.0) / 3.0);
  EXPECT_NEAR(sum / count, 0.0, 5 * deviation / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), deviation, 0.01 * deviation);
}

TEST(SyntheticTest, PresetsHoldWhatTheirConfigsCount) {
  const struct {
    const char* spec;
    int64_t parameters;
  } kCases[] = {
      {"synthetic:tiny", 1312896},
      {"synthetic:llama3-1b", 1498482688},
      {"synthetic:llama3-8b", 8030261248},
      {"synthetic:llama3-70b", 70553706496},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(test.spec);
    SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec(test.spec));
    int64_t elements = 0;
    for (const TensorInfo& tensor : model.weights->tensors()) elements += tensor.elements();
    EXPECT_EQ(elements, test.parameters);
    EXPECT_EQ(model.config.ParameterCount(), test.parameters);
    SKEIN_ASSERT_OK_AND_ASSIGN(ModelConfig again,
                               ParseModelConfig(ModelConfigToJson(model.config)));
    EXPECT_EQ(again, model.config);
  }
}

TEST(SyntheticTest, TiedEmbeddingsHaveNoOutputMatrix) {
  SKEIN_ASSERT_OK_AND_ASSIGN(SyntheticModel model, ParseSyntheticSpec("synthetic:tiny"));
  model.config.tie_word_embeddings = true;
  const auto source = MakeSyntheticWeights(model.config, "tied");
  EXPECT_THAT(source->Find("lm_head.weight"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("tied")));
}

TEST(SyntheticTest, UnknownSpecsNameTheKnown) {
  for (const char* spec : {"synthetic:", "synthetic:gpt2", "tiny", "", "synthetic:tiny "}) {
    EXPECT_THAT(ParseSyntheticSpec(spec),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(spec), HasSubstr("synthetic:llama3-1b"))));
  }
  EXPECT_TRUE(IsSyntheticSpec("synthetic:x"));
  EXPECT_FALSE(IsSyntheticSpec("/models/synthetic:x"));
}

}  // namespace
}  // namespace skein::model
