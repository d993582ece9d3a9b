// Weights that the device makes against the same ones loaded, byte by byte.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/counted_numbers.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/device_testing.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::HasSubstr;

// SplitMix64 as a generator, one output after another.
class Generator {
 public:
  explicit Generator(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// The first `count` numbers of the seed.
std::vector<float> Numbers(uint64_t seed, int64_t count) {
  Generator generator(seed);
  std::vector<float> numbers;
  while (static_cast<int64_t>(numbers.size()) < count) {
    uint64_t word = generator.Next();
    for (int i = 0; i < 8; ++i, word >>= 8) {
      numbers.push_back((2.0f * static_cast<float>(word & 255) - 255.0f) / 8192.0f);
    }
  }
  return numbers;
}

struct Part {
  int64_t first_row;  // of the weight
  int64_t rows;
  CountedRows numbers;
};
struct Case {
  const char* name;
  int64_t rows;
  int64_t cols;
  bool gates_and_ups;
  std::vector<Part> parts;
  DType dtype = DType::kBF16;
};

class MakeRowsTest : public testing::TestWithParam<Case> {
 protected:
  // A matrix, and where it is of gates and ups the operations that make it lie interleaved.
  static Program ProgramOf(const Case& c) {
    Program program;
    program.weights = {
        {.name = c.name, .spec = {.rows = c.rows, .cols = c.cols, .dtype = c.dtype}}};
    program.buffers = {{.name = "in", .cols = c.cols, .dtype = c.dtype},
                       {.name = "product", .cols = c.rows, .dtype = c.dtype},
                       {.name = "out", .cols = c.rows / 2, .dtype = c.dtype}};
    if (c.gates_and_ups) program.ops = {MatMulOp{0, 0, 1}, GluOp{1, 2}};
    return program;
  }

  static std::vector<uint16_t> Download(const CudaWeights& weights, const Case& c) {
    std::vector<uint16_t> bits(static_cast<size_t>(c.rows * c.cols));
    EXPECT_EQ(cudaMemcpy(bits.data(), weights.data(0), bits.size() * sizeof(uint16_t),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return bits;
  }

  static absl::Status Load(CudaWeights& weights, const Case& c, const Part& part) {
    const CountedRows& n = part.numbers;
    const std::vector<float> numbers = Numbers(n.seed, n.first + part.rows * n.stride + c.cols);
    SKEIN_ASSIGN_OR_RETURN(auto staged,
                           weights.Stage(DTypeBytes(DType::kBF16, part.rows * c.cols)));
    auto* out = reinterpret_cast<uint16_t*>(staged->bytes().data());
    for (int64_t row = 0; row < part.rows; ++row) {
      for (int64_t col = 0; col < c.cols; ++col) {
        const float number = numbers[static_cast<size_t>(n.first + row * n.stride + col)];
        *out++ = c.dtype == DType::kF16 ? FloatToF16(number) : FloatToBf16(number);
      }
    }
    return weights.Load({.first = part.first_row, .count = part.rows}, std::move(staged));
  }
};

TEST_P(MakeRowsTest, HasTheBitsThatAreLoaded) {
  SKEIN_NEED_GPU();
  const Case& c = GetParam();
  const Program program = ProgramOf(c);
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto made, CudaWeights::Create(program, 0));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto loaded, CudaWeights::Create(program, 0));
  EXPECT_EQ(made->interleaved(0), c.gates_and_ups);
  for (const Part& part : c.parts) {
    SKEIN_ASSERT_OK(made->Make({.first = part.first_row, .count = part.rows}, part.numbers));
    SKEIN_ASSERT_OK(Load(*loaded, c, part));
  }
  SKEIN_ASSERT_OK(made->FinishLoading());
  SKEIN_ASSERT_OK(loaded->FinishLoading());
  const std::vector<uint16_t> bits = Download(*made, c);
  EXPECT_EQ(bits, Download(*loaded, c));
  EXPECT_NE(bits, std::vector<uint16_t>(bits.size(), 0));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, MakeRowsTest,
    testing::Values(Case{"whole", 64, 256, false, {{0, 64, {7, 0, 256}}}},
                    Case{"odd", 37, 19, false, {{0, 37, {8, 0, 19}}}},
                    Case{"columns", 24, 40, false, {{0, 24, {9, 3, 161}}}},
                    Case{"stacked", 40, 24, false, {{0, 24, {1, 0, 24}}, {24, 16, {2, 48, 24}}}},
                    Case{"padded", 64, 16, false, {{0, 50, {3, 0, 16}}}},
                    Case{"gates", 96, 64, true, {{0, 48, {4, 0, 64}}, {48, 48, {5, 0, 64}}}},
                    Case{"cut", 96, 64, true, {{3, 40, {4, 5, 99}}, {50, 46, {5, 1, 64}}}},
                    Case{"long", 70000, 8, false, {{0, 70000, {6, 0, 8}}}},
                    Case{"wide", 9, 5000, false, {{0, 9, {11, 1, 5001}}}},
                    Case{"halves", 64, 256, false, {{0, 64, {7, 0, 256}}}, DType::kF16},
                    Case{"odd_halves", 37, 19, false, {{0, 37, {8, 0, 19}}}, DType::kF16}),
    [](const testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

TEST(MakeRowsErrors, RowsThatAreNotThereAndVectorsAreRefused) {
  SKEIN_NEED_GPU();
  Program program;
  program.weights = {
      {.name = "matrix", .spec = {.rows = 8, .cols = 8}},
      {.name = "vector", .spec = {.kind = WeightSpec::Kind::kVector, .rows = 1, .cols = 8}}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto weights, CudaWeights::Create(program, 0));
  EXPECT_THAT(weights->Make({.first = 4, .count = 5}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rows")));
  EXPECT_THAT(weights->Make({.weight = 2}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no weight 2")));
  EXPECT_THAT(weights->Make({.weight = 1, .count = 1}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("loaded")));
}

}  // namespace
}  // namespace skein::kernels::cuda
