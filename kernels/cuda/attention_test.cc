// Decode attention, and what writes the cache, against loops in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/attention_testing.h"
#include "kernels/cuda/comparison.h"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append_kv.h"

namespace skein::kernels::cuda {
namespace {

// The output of the sequences with one row.
DeviceBytes Decode(const PagedProblem& problem, int32_t multiprocessors, bool early,
                   Stream stream) {
  const AttentionShape& shape = problem.shape();
  const DeviceBytes plan(DecodePlanBytes(problem.batch().sequences, multiprocessors));
  const DeviceBytes partials(
      DecodePartialBytes(shape.heads, shape.kv_heads, shape.head_dim, multiprocessors));
  DeviceBytes out = problem.NewOut();
  Require(Enqueue(PlanDecode{.batch = problem.batch(),
                             .kv_heads = shape.kv_heads,
                             .window = shape.window,
                             .multiprocessors = multiprocessors,
                             .plan = plan.data()},
                  stream));
  const DeviceBytes rows(16);
  // Behind a kernel that waits first, and one that lets the next begin first.
  if (early) {
    Require(Enqueue(GatherRows{.rows = 1,
                               .cols = 8,
                               .ids = problem.batch().row_begin,
                               .in = rows.data(),
                               .out = rows.data(),
                               .in_stride = 8,
                               .out_stride = 8},
                    stream));
    Require(Enqueue(RmsNorm{.rows = 1, .cols = 8, .residual = rows.data(), .residual_stride = 8},
                    stream));
  }
  Require(Enqueue(DecodeAttention{.dtype = shape.dtype,
                                  .batch = problem.batch(),
                                  .heads = shape.heads,
                                  .kv = problem.kv(),
                                  .scale = shape.scale(),
                                  .window = shape.window,
                                  .multiprocessors = multiprocessors,
                                  .plan = plan.data(),
                                  .early = early,
                                  .partials = partials.data(),
                                  .q = problem.q(),
                                  .out = out.data(),
                                  .q_stride = problem.q_stride(),
                                  .out_stride = problem.q_stride()},
                  stream));
  return out;
}

void TestDecode(const AttentionShape& shape, const std::vector<Piece>& pieces) {
  SCOPED_TRACE(shape.Name());
  OwnStream stream;
  const PagedProblem problem(shape, pieces);
  const std::vector<bool> wanted = problem.WithOneRow();
  const Expected reference = problem.Reference(wanted);
  // The fewer there are, the longer a worker's run, and the oftener its ring goes round.
  for (const int32_t multiprocessors : {1, 3, Multiprocessors()}) {
    SCOPED_TRACE(testing::Message() << multiprocessors << " multiprocessors");
    for (const bool early : {false, true}) {
      SCOPED_TRACE(early);
      const DeviceBytes out = Decode(problem, multiprocessors, early, stream);
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(problem.Rows(out, wanted), reference));
      EXPECT_TRUE(problem.OthersAreUntouched(out, wanted));
    }
  }
}

TEST(DecodeAttentionTest, AgreesWithTheDefinition) {
  SKEIN_NEED_GPU();
  // Sequences without rows are padding; those with several are not its business.
  const std::vector<Piece> pieces = {{1, 1},   {1, 2},  {0, 0}, {1, 15},  {1, 16},   {3, 40},
                                     {1, 17},  {1, 63}, {0, 7}, {1, 64},  {1, 65},   {1, 127},
                                     {1, 130}, {9, 9},  {0, 0}, {1, 300}, {1, 1009}, {0, 0}};
  for (const AttentionShape& shape : AttentionShapes()) TestDecode(shape, pieces);
}

TEST(DecodeAttentionTest, SpreadsFewLongSequences) {
  SKEIN_NEED_GPU();
  TestDecode({DType::kBF16, 8, 2, 128, 16, 0}, {{1, 20000}});
  TestDecode({DType::kF16, 16, 1, 64, 64, 0}, {{1, 33333}, {1, 5}});
  TestDecode({DType::kBF16, 4, 1, 128, 16, 0}, {{1, 131072}});
  TestDecode({DType::kBF16, 4, 1, 96, 16, 5000}, {{1, 20001}, {1, 4999}, {1, 5001}});
  TestDecode({DType::kBF16, 8, 2, 128, 16, 0, true}, {{1, 20000}});
  TestDecode({DType::kF16, 4, 1, 96, 16, 5000, true}, {{1, 20001}, {1, 4999}, {1, 5001}});
}

// Where a long decode may lose a position: at both ends of what is seen, and where workers' runs
// meet, of a sequence that is alone.
std::vector<int32_t> Needles(const AttentionShape& shape, int32_t length, int32_t multiprocessors) {
  constexpr int32_t kWorkers = 8;  // of a multiprocessor
  const int32_t begin = shape.window > 0 ? std::max(0, length - shape.window) : 0;
  const int32_t first = begin / kKvBlock;
  const int32_t units = (length + kKvBlock - 1) / kKvBlock - first;
  const int32_t workers = kWorkers * multiprocessors;
  const int32_t each = std::max(4, (units * shape.kv_heads + workers - 1) / workers);
  std::vector<int32_t> needles = {begin, length - 1};
  if (begin > 0) needles.push_back(begin - 1);  // unseen
  for (const int32_t worker : {1, workers / 2, workers - 1}) {
    const int32_t position = (first + worker * each % units) * kKvBlock;
    needles.push_back(position);
    needles.push_back(position - 1);
  }
  std::erase_if(needles, [&](int32_t p) { return p < 0 || p >= length; });
  return needles;
}

TEST(DecodeAttentionTest, LosesNoPosition) {
  SKEIN_NEED_GPU();
  const std::pair<AttentionShape, int32_t> cases[] = {
      {{DType::kBF16, 8, 2, 128, 16, 0}, 20000},
      {{DType::kF16, 16, 1, 64, 64, 0}, 33333},
      {{DType::kBF16, 4, 1, 128, 16, 0}, 131072},
      {{DType::kF16, 4, 2, 96, 16, 5000}, 20001},
      {{DType::kBF16, 8, 2, 128, 16, 0, true}, 20000},
      {{DType::kF16, 4, 2, 64, 64, 5000, true}, 20001}};
  for (const auto& [shape, length] : cases) {
    for (const int32_t multiprocessors : {1, 3, Multiprocessors()}) {
      SCOPED_TRACE(testing::Message() << "runs of " << multiprocessors << " multiprocessors");
      TestDecode(shape, {{1, length, Needles(shape, length, multiprocessors)}});
    }
  }
}

TEST(DecodeAttentionTest, PacksManyShortSequences) {
  SKEIN_NEED_GPU();
  std::vector<Piece> pieces;
  for (int32_t s = 0; s < 300; ++s) pieces.push_back({s % 13 == 5 ? 0 : 1, 1 + s * 7 % 211});
  TestDecode({DType::kBF16, 16, 4, 128, 16, 0}, pieces);
  TestDecode({DType::kF16, 6, 6, 64, 64, 64}, pieces);
  TestDecode({DType::kBF16, 16, 4, 128, 16, 0, true}, pieces);
}

TEST(DecodeAttentionTest, ManySequencesNeedSeveralScans) {
  SKEIN_NEED_GPU();
  std::vector<Piece> pieces;
  for (int32_t s = 0; s < 2500; ++s) pieces.push_back({s % 3 == 0 ? 0 : 1, 1 + s % 40});
  TestDecode({DType::kBF16, 2, 1, 64, 16, 0}, pieces);
}

TEST(DecodeAttentionTest, NothingToDecode) {
  SKEIN_NEED_GPU();
  TestDecode({}, {{0, 0}, {5, 5}, {0, 3}});
}

TEST(AttentionTest, RefusesWhatDoesNotFit) {
  const KvLayer kv = {nullptr, 2, 80, 16};
  EXPECT_THAT(Enqueue(DecodeAttention{.heads = 2, .kv = kv}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("heads of 80")));
  EXPECT_THAT(Enqueue(PrefillAttention{.heads = 2, .kv = kv}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("heads of 80")));
  EXPECT_THAT(Enqueue(RopeAppendKv{.rows = 1, .heads = 2, .kv = kv}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("heads of 80")));
  EXPECT_THAT(Enqueue(DecodeAttention{.heads = 34, .kv = {nullptr, 2, 64, 16}}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("34 heads")));
  const KvLayer good = {nullptr, 2, 64, 16};
  EXPECT_THAT(Enqueue(DecodeAttention{.heads = 0, .kv = good}, {}),
              StatusIs(absl::StatusCode::kUnimplemented, testing::HasSubstr("0 heads")));
  EXPECT_THAT(Enqueue(PrefillAttention{.heads = 0, .kv = good}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("heads")));
  EXPECT_THAT(Enqueue(RopeAppendKv{.rows = 1, .heads = 2, .kv = {nullptr, 0, 64, 16}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("0 KV heads")));
  const void* odd = reinterpret_cast<const void*>(uintptr_t{24});
  EXPECT_THAT(Enqueue(DecodeAttention{.heads = 2, .kv = good, .multiprocessors = 1, .q = odd}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("16-byte")));
  EXPECT_THAT(Enqueue(PrefillAttention{.heads = 2, .kv = good, .q = odd}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("16-byte")));
}

// qkv rows of rope's test, with a gap after each.
struct RopeCase {
  DType dtype;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
  int32_t page_size;
  bool int8 = false;
};

// What a key or a value of a cache should be, and what may be wrong with it.
struct Vector {
  std::vector<double> values, errors;
};

// Where an int8 cache keeps the vector, with its scale: an element is half a step off at most. The
// step is a 127th of the largest element, which may be off as its own error says.
void AddInt8(const char* block, const RopeCase& c, int row, bool is_value, const Vector& vector,
             std::vector<float>& actual, Expected& expected) {
  float scale;
  std::memcpy(&scale, block + KvScalesByte(c.head_dim, is_value) + row * 4, 4);
  double largest = 0;
  double error = 0;
  for (int i = 0; i < c.head_dim; ++i) {
    largest = std::max(largest, std::abs(vector.values[i]));
    error = std::max(error, vector.errors[i]);
  }
  actual.push_back(scale);
  expected.Add(largest / 127, (error + largest * 0x1p-23) / 127);
  int most = 0;
  for (int i = 0; i < c.head_dim; ++i) {
    const auto steps = static_cast<int8_t>(
        block[(is_value ? KvValuesByte(c.head_dim, true) : 0) + KvInt8Offset(c.head_dim, row, i)]);
    most = std::max(most, std::abs(int{steps}));
    actual.push_back(static_cast<float>(steps * double{scale}));
    expected.Add(vector.values[i], scale / 2 + vector.errors[i] + largest * 0x1p-22);
  }
  EXPECT_EQ(most, largest > 0 ? 127 : 0);
}

void Add16Bits(const char* block, const RopeCase& c, int row, bool is_value, const Vector& vector,
               std::vector<float>& actual, Expected& expected) {
  for (int i = 0; i < c.head_dim; ++i) {
    uint16_t bits;
    std::memcpy(&bits,
                block + (is_value ? KvValuesByte(c.head_dim, false) : 0) +
                    2 * (KvChunkOffset(c.head_dim, row, i / 8) + i % 8),
                2);
    float value;
    ConvertToFloat(c.dtype, &bits, 1, &value);
    actual.push_back(value);
    expected.Add(vector.values[i], vector.errors[i] +
                                       UnitRoundoff(c.dtype) * std::abs(vector.values[i]) +
                                       LeastError(c.dtype));
  }
}

void TestRope(const RopeCase& c) {
  SCOPED_TRACE(testing::Message() << DTypeName(c.dtype) << " " << c.heads << "/" << c.kv_heads
                                  << " x " << c.head_dim << " page " << c.page_size
                                  << (c.int8 ? " int8" : ""));
  const std::vector<int32_t> positions = {0, 1, 17, 1000, 131071, 5, 1048575};
  const std::vector<int64_t> slots = {3, 70, -1, 64, 159, 16, 0};
  constexpr int64_t kCacheSlots = 192;
  const auto rows = static_cast<int64_t>(positions.size());
  const int64_t d = c.head_dim;
  const int64_t width = (c.heads + 2 * c.kv_heads) * d;
  const int64_t stride = width + 8;
  std::vector<float> qkv = RandomValues(1, rows * stride, c.dtype, 2);
  // A value of zeros has no step.
  std::fill_n(qkv.begin() + (c.heads + c.kv_heads) * d, d, 0.0f);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < d / 2; ++i) {
    frequencies.push_back(static_cast<float>(
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d))));
  }

  OwnStream stream;
  const DeviceBytes device_qkv = Encoded(c.dtype, qkv);
  const DeviceArray<float> device_frequencies(frequencies);
  const DeviceArray<int32_t> device_positions(positions);
  const DeviceArray<int64_t> device_slots(slots);
  KvLayer kv = {nullptr, c.kv_heads, c.head_dim, c.page_size, c.int8};
  const DeviceBytes cache(kCacheSlots / c.page_size * kv.PageBytes());
  kv.data = cache.data();
  SKEIN_ASSERT_OK(Enqueue(RopeAppendKv{.dtype = c.dtype,
                                       .rows = rows,
                                       .heads = c.heads,
                                       .qkv = device_qkv.data(),
                                       .qkv_stride = stride,
                                       .kv = kv,
                                       .inverse_frequencies = device_frequencies.get(),
                                       .positions = device_positions.get(),
                                       .kv_slots = device_slots.get()},
                          stream));
  SKEIN_ASSERT_OK(stream.Finish());

  const std::vector<float> rotated = Decoded(c.dtype, device_qkv);
  std::vector<char> cached(static_cast<size_t>(cache.bytes()));
  cache.Download(cached.data(), cache.bytes());
  std::vector<float> actual;
  Expected expected;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < c.heads + 2 * c.kv_heads; ++h) {
      const float* in = qkv.data() + r * stride + h * d;
      Vector vector;
      for (int64_t i = 0; i < d; ++i) {
        vector.values.push_back(in[i]);
        vector.errors.push_back(0);
        if (h >= c.heads + c.kv_heads || slots[r] < 0) continue;
        const int64_t pair = i % (d / 2);
        const double angle = static_cast<float>(positions[r]) * frequencies[pair];
        const double a = in[pair];
        const double b = in[pair + d / 2];
        vector.values.back() = i < d / 2 ? a * std::cos(angle) - b * std::sin(angle)
                                         : b * std::cos(angle) + a * std::sin(angle);
        // A turn is rounded to 2^-25 of itself: 2^-22 radians.
        vector.errors.back() = (std::abs(a) + std::abs(b)) * 0x1p-21;
      }
      if (h < c.heads) {
        for (int64_t i = 0; i < d; ++i) {
          const bool kept = slots[r] < 0;
          expected.Add(vector.values[i],
                       kept
                           ? 0
                           : vector.errors[i] + UnitRoundoff(c.dtype) * std::abs(vector.values[i]) +
                                 LeastError(c.dtype));
          actual.push_back(rotated[r * stride + h * d + i]);
        }
      } else if (slots[r] >= 0) {
        const auto offset = static_cast<int>(slots[r] % c.page_size);
        const char* block =
            cached.data() + kv.BlockByte(slots[r] / c.page_size,
                                         static_cast<int>((h - c.heads) % c.kv_heads), offset);
        (c.int8 ? AddInt8 : Add16Bits)(block, c, offset % kKvBlock, h >= c.heads + c.kv_heads,
                                       vector, actual, expected);
      }
    }
  }
  EXPECT_TRUE(Agrees(actual, expected));
  // Bytes that are not of a vector that was written: as before. Of those that are, few are 0xff.
  const int64_t per_vector = c.int8 ? d + 4 : 2 * d;
  const int64_t written = 6 * 2 * c.kv_heads * per_vector;
  const int64_t changed = std::ranges::count_if(cached, [](char b) { return b != '\xff'; });
  EXPECT_LE(changed, written);
  EXPECT_GE(changed, written * 15 / 16);
}

TEST(RopeAppendKvTest, AgreesWithTheDefinition) {
  SKEIN_NEED_GPU();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int32_t head_dim : {64, 96, 128}) {
      for (int32_t page_size : {16, 64}) {
        for (const bool int8 : {false, true}) {
          TestRope({dtype, 8, 2, head_dim, page_size, int8});
          TestRope({dtype, 3, 1, head_dim, page_size, int8});
          TestRope({dtype, 32, 32, head_dim, page_size, int8});
        }
      }
    }
  }
}

// What is not finite makes its own key or value NaN, and no other.
TEST(RopeAppendKvTest, ANumberThatIsNotFiniteIsSeen) {
  SKEIN_NEED_GPU();
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<float> qkv(6 * 64, 1.0f);  // 2 heads, 2 keys, 2 values
    qkv[5 * 64 + 33] = bad;
    OwnStream stream;
    const DeviceBytes device_qkv = Encoded(DType::kBF16, qkv);
    const DeviceArray<float> frequencies(std::vector<float>(32, 0.0f));
    const DeviceArray<int32_t> positions({0});
    const DeviceArray<int64_t> slots({5});
    KvLayer kv = {nullptr, 2, 64, 16, true};
    const DeviceBytes cache(kv.PageBytes());
    kv.data = cache.data();
    SKEIN_ASSERT_OK(Enqueue(RopeAppendKv{.rows = 1,
                                         .heads = 2,
                                         .qkv = device_qkv.data(),
                                         .qkv_stride = 6 * 64,
                                         .kv = kv,
                                         .inverse_frequencies = frequencies.get(),
                                         .positions = positions.get(),
                                         .kv_slots = slots.get()},
                            stream));
    SKEIN_ASSERT_OK(stream.Finish());
    std::vector<char> cached(static_cast<size_t>(cache.bytes()));
    cache.Download(cached.data(), cache.bytes());
    const auto scale = [&](int head, bool of_value) {
      float value;
      std::memcpy(&value, &cached[kv.BlockByte(0, head, 5) + KvScalesByte(64, of_value) + 5 * 4],
                  4);
      return value;
    };
    EXPECT_TRUE(std::isnan(scale(1, true)));
    EXPECT_FLOAT_EQ(scale(0, true), 1.0f / 127);
    EXPECT_FLOAT_EQ(scale(1, false), 1.0f / 127);
  }
}

}  // namespace
}  // namespace skein::kernels::cuda
