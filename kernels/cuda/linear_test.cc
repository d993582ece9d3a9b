// FewRowsLinear, StreamKLinear and BlasLinear against sums in double.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/forms.h"
#include "kernels/cuda/linear_testing.h"
#include "kernels/cuda/stream_k_linear.h"
#include "kernels/cuda/stream_k_sizes.h"

namespace skein::kernels::cuda {
namespace {

FewRowsLinear OpOf(const Case& c, const Data& data, const DeviceBytes& out) {
  return {.dtype = c.dtype,
          .out_dtype = c.out_dtype,
          .rows = c.rows,
          .n = c.n,
          .k = c.k,
          .in = data.device_in.data(),
          .weight = data.device_weight.data(),
          .bias = c.bias ? data.device_bias.get() : nullptr,
          .residual = c.residual ? data.device_residual.data() : nullptr,
          .out = out.data(),
          .in_stride = c.k + c.pad,
          .weight_stride = c.k + c.pad,
          .residual_stride = c.n + c.pad,
          .out_stride = c.n + c.pad,
          .multiprocessors = Multiprocessors()};
}

TEST(FewRowsLinearTest, AgreesWithTheDefinition) {
  SKEIN_NEED_HOPPER();
  std::vector<Case> cases;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (int64_t rows = 1; rows <= 16; ++rows) {
      cases.push_back({dtype, rows % 2 == 0 ? dtype : DType::kF32, rows, 80, 520, rows % 3 == 0,
                       rows % 4 < 2, 8 * (rows % 3)});
    }
    cases.push_back({dtype, dtype, 1, 1, 8});
    cases.push_back({dtype, dtype, 3, 17, 16});
    cases.push_back({dtype, dtype, 11, 33, 1032, true, true, 8});
    cases.push_back({dtype, DType::kF32, 4, 33, 1032, false, true, 8});
    cases.push_back({dtype, DType::kF32, 1, 4096, 4096, false, true});
    cases.push_back({dtype, dtype, 16, 130, 14336});
    cases.push_back({dtype, dtype, 2, 6000, 72});
    cases.push_back({dtype, DType::kF32, 9, 2200, 2056, false, true});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(c.Name());
    OwnStream stream;
    const Data data(c);
    const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
    SKEIN_ASSERT_OK(Enqueue(OpOf(c, data, out), stream));
    SKEIN_ASSERT_OK(stream.Finish());
    EXPECT_TRUE(Agrees(RowsOf(c, Decoded(c.out_dtype, out)), ExpectedOf(c, data)));
  }
}

TEST(FewRowsLinearTest, AddsToTheResidualInPlace) {
  SKEIN_NEED_HOPPER();
  const Case c = {.rows = 5, .n = 96, .k = 256, .residual = true};
  OwnStream stream;
  const Data data(c);
  const Expected expected = ExpectedOf(c, data);
  FewRowsLinear op = OpOf(c, data, data.device_residual);
  SKEIN_ASSERT_OK(Enqueue(op, stream));
  SKEIN_ASSERT_OK(stream.Finish());
  EXPECT_TRUE(Agrees(Decoded(c.out_dtype, data.device_residual), expected));
}

TEST(FewRowsLinearTest, ARowsBitsDependOnNoOther) {
  SKEIN_NEED_HOPPER();
  for (const auto& [few, many] : {std::pair{1, 8}, {1, 16}, {9, 16}}) {
    const Case all = {.out_dtype = DType::kF32, .rows = many, .n = 100, .k = 1000};
    Case some = all;
    some.rows = few;
    OwnStream stream;
    const Data data(all);
    const DeviceBytes out(4 * all.rows * all.n);
    const DeviceBytes first(4 * some.rows * all.n);
    SKEIN_ASSERT_OK(Enqueue(OpOf(all, data, out), stream));
    SKEIN_ASSERT_OK(Enqueue(OpOf(some, data, first), stream));
    SKEIN_ASSERT_OK(stream.Finish());
    std::vector<float> rows = Decoded(DType::kF32, out);
    rows.resize(static_cast<size_t>(few * all.n));
    EXPECT_TRUE(SameBits(Decoded(DType::kF32, first), rows));
  }
}

TEST(FewRowsLinearTest, AppliesSwiGlu) {
  SKEIN_NEED_HOPPER();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 7, 8, 9, 16}) {
      const Case c = {.dtype = dtype, .out_dtype = dtype, .rows = rows, .n = 176, .k = 264};
      SCOPED_TRACE(c.Name());
      OwnStream stream;
      const Data data(c);
      const DeviceBytes out(DTypeBytes(dtype, rows * c.n / 2));
      FewRowsLinear op = OpOf(c, data, out);
      op.swiglu = true;
      op.out_stride = c.n / 2;
      SKEIN_ASSERT_OK(Enqueue(op, stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(Decoded(dtype, out), ExpectedSwiGlu(c, data)));
    }
  }
}

TEST(FewRowsLinearTest, RefusesWhatDoesNotFit) {
  EXPECT_THAT(Enqueue(FewRowsLinear{.rows = 17, .n = 8, .k = 8}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("17 rows")));
  EXPECT_THAT(Enqueue(FewRowsLinear{.rows = 1, .n = 8, .k = 12}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("multiples of 8")));
  EXPECT_THAT(Enqueue(FewRowsLinear{.swiglu = true, .rows = 1, .n = 8, .k = 8}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("SwiGlu")));
  const void* odd = reinterpret_cast<const void*>(uintptr_t{24});
  EXPECT_THAT(
      Enqueue(FewRowsLinear{.rows = 1, .n = 8, .k = 8, .in = odd, .multiprocessors = 1}, {}),
      StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("16-byte")));
  EXPECT_THAT(Enqueue(FewRowsLinear{.rows = 1, .n = 8, .k = 8, .multiprocessors = 1}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("in place")));
}

// A launch, and the workspace that it needs.
struct StreamK {
  StreamKLinear op;
  DeviceBytes workspace;

  StreamK(const Case& c, const Data& data, const DeviceBytes& out, int32_t multiprocessors)
      : workspace(StreamKWorkspaceBytes(multiprocessors)) {
    const FewRowsLinear few = OpOf(c, data, out);
    op = {.dtype = c.dtype,
          .out_dtype = c.out_dtype,
          .rows = c.rows,
          .n = c.n,
          .k = c.k,
          .in = few.in,
          .weight = few.weight,
          .out = few.out,
          .in_stride = few.in_stride,
          .weight_stride = few.weight_stride,
          .out_stride = few.out_stride,
          .multiprocessors = multiprocessors,
          .workspace = workspace.data()};
  }
};

TEST(StreamKLinearTest, AgreesWithTheDefinition) {
  SKEIN_NEED_HOPPER();
  std::vector<Case> cases;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 7, 8, 9, 16, 17, 31, 32}) {
      const DType out = rows % 2 == 0 ? dtype : DType::kF32;
      cases.push_back({dtype, out, rows, 80, 520, false, false, 8 * (rows % 3)});
      cases.push_back({dtype, out == dtype ? DType::kF32 : dtype, rows, 1000, 328});
    }
    cases.push_back({dtype, dtype, 1, 8, 8});
    cases.push_back({dtype, dtype, 32, 128, 16384});  // a tile for all blocks
    cases.push_back({dtype, dtype, 32, 520, 4096});
    cases.push_back({dtype, dtype, 24, 34000, 64});  // several tiles for each block
  }
  for (const Case& c : cases) {
    // Few blocks have other borders within tiles than many.
    for (const int32_t multiprocessors : {Multiprocessors(), 12, 3}) {
      SCOPED_TRACE(c.Name() + " by " + std::to_string(multiprocessors));
      OwnStream stream;
      const Data data(c);
      const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
      const StreamK launch(c, data, out, multiprocessors);
      SKEIN_ASSERT_OK(Enqueue(launch.op, stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(RowsOf(c, Decoded(c.out_dtype, out)), ExpectedOf(c, data)));
    }
  }
}

TEST(StreamKLinearTest, AppliesSwiGlu) {
  SKEIN_NEED_HOPPER();
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 9, 17, 32}) {
      const Case c = {.dtype = dtype, .out_dtype = dtype, .rows = rows, .n = 688, .k = 264};
      SCOPED_TRACE(c.Name());
      OwnStream stream;
      const Data data(c);
      const DeviceBytes out(DTypeBytes(dtype, rows * c.n / 2));
      StreamK launch(c, data, out, Multiprocessors());
      launch.op.swiglu = true;
      launch.op.out_stride = c.n / 2;
      SKEIN_ASSERT_OK(Enqueue(launch.op, stream));
      SKEIN_ASSERT_OK(stream.Finish());
      EXPECT_TRUE(Agrees(Decoded(dtype, out), ExpectedSwiGlu(c, data)));
    }
  }
}

// Launches share a workspace, and begin while those before them end.
TEST(StreamKLinearTest, FollowsItselfAndKeepsARowsBits) {
  SKEIN_NEED_HOPPER();
  for (const int64_t rows : {8, 16, 32}) {
    const Case c = {.out_dtype = DType::kF32, .rows = rows, .n = 520, .k = 4096};
    SCOPED_TRACE(c.Name());
    OwnStream stream;
    const Data data(c);
    const int64_t bytes = 4 * c.rows * c.n;
    std::vector<DeviceBytes> outs;
    for (int i = 0; i < 50; ++i) outs.emplace_back(bytes);
    StreamK launch(c, data, outs[0], Multiprocessors());
    for (const DeviceBytes& out : outs) {
      // All rows, and all but one of them in turn.
      launch.op.rows = &out == &outs.back() || (&out - outs.data()) % 2 == 0 ? rows : rows - 1;
      launch.op.out = out.data();
      SKEIN_ASSERT_OK(Enqueue(launch.op, stream));
    }
    SKEIN_ASSERT_OK(stream.Finish());
    const std::vector<float> expected = Decoded(DType::kF32, outs[0]);
    EXPECT_TRUE(Agrees(expected, ExpectedOf(c, data)));
    for (size_t i = 1; i < outs.size(); ++i) {
      const bool all = i + 1 == outs.size() || i % 2 == 0;
      const auto count = static_cast<size_t>((all ? rows : rows - 1) * c.n);
      std::vector<float> got = Decoded(DType::kF32, outs[i]);
      got.resize(count);
      EXPECT_TRUE(SameBits(got, {expected.begin(), expected.begin() + count})) << i;
    }
  }
}

TEST(StreamKLinearTest, RefusesWhatDoesNotFit) {
  const auto refuses = [](const StreamKLinear& op, const char* message) {
    EXPECT_THAT(Enqueue(op, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(message)));
  };
  refuses({.rows = 33, .n = 8, .k = 8}, "33 rows");
  refuses({.rows = 1, .n = 12, .k = 8}, "multiples of 8");
  refuses({.swiglu = true, .rows = 1, .n = 8, .k = 8}, "SwiGlu");
  refuses({.rows = 1, .n = 8, .k = 8}, "workspace");
  void* const some = reinterpret_cast<void*>(uintptr_t{32});
  StreamKLinear op = {.rows = 1, .n = 8, .k = 8, .multiprocessors = 2, .workspace = some};
  refuses(op, "in place");
  op.in = reinterpret_cast<const void*>(uintptr_t{24});
  refuses(op, "16-byte");
}

BlasLinear BlasOpOf(const Case& c, const Data& data, void* out) {
  const FewRowsLinear op = OpOf(c, data, data.device_residual);
  return {.dtype = c.dtype,
          .out_dtype = c.out_dtype,
          .rows = c.rows,
          .n = c.n,
          .k = c.k,
          .in = op.in,
          .weight = op.weight,
          .out = out,
          .in_stride = op.in_stride,
          .weight_stride = op.weight_stride,
          .out_stride = op.out_stride};
}

class BlasLinearTest : public testing::Test {
 protected:
  void SetUp() override {
    SKEIN_NEED_GPU();
    workspace_ = std::make_unique<DeviceBytes>(Blas::kWorkspaceBytes);
    SKEIN_ASSERT_OK_AND_ASSIGN(blas_, Blas::Create(workspace_->data(), Blas::kWorkspaceBytes));
  }

  OwnStream& stream() {
    if (stream_ == nullptr) stream_ = std::make_unique<OwnStream>();
    return *stream_;
  }

  std::unique_ptr<DeviceBytes> workspace_;
  std::unique_ptr<Blas> blas_;
  std::unique_ptr<OwnStream> stream_;
};

std::vector<Case> BlasCases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    for (DType out : {dtype, DType::kF32}) {
      cases.push_back({dtype, out, 17, 104, 264, false, false, 8});
      cases.push_back({dtype, out, 33, 256, 520});
      cases.push_back({dtype, out, 200, 136, 1024, false, false, 8});
      cases.push_back({dtype, out, 1, 64, 64});
    }
  }
  return cases;
}

TEST_F(BlasLinearTest, AgreesWithTheDefinition) {
  for (const Case& c : BlasCases()) {
    SCOPED_TRACE(c.Name());
    const Data data(c);
    const DeviceBytes out(DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
    SKEIN_ASSERT_OK(blas_->Enqueue(BlasOpOf(c, data, out.data()), stream()));
    SKEIN_ASSERT_OK(stream().Finish());
    EXPECT_TRUE(Agrees(RowsOf(c, Decoded(c.out_dtype, out)), ExpectedOf(c, data)));
  }
}

// As a product that was tuned for more rows.
TEST_F(BlasLinearTest, FewerRowsThanTunedAgreeToo) {
  for (const DType out_dtype : {DType::kBF16, DType::kF32}) {
    const Case tuned = {DType::kBF16, out_dtype, 200, 136, 1024, false, false, 8};
    const Data many(tuned);
    const DeviceBytes out(DTypeBytes(out_dtype, tuned.rows * (tuned.n + tuned.pad)));
    SKEIN_ASSERT_OK(blas_->Tune({BlasOpOf(tuned, many, out.data())}, stream()));
    for (const int64_t rows : {200, 199, 129, 64, 17, 1}) {
      Case c = tuned;
      c.rows = rows;
      SCOPED_TRACE(c.Name());
      const Data data(c);
      const DeviceBytes few(DTypeBytes(out_dtype, rows * (c.n + c.pad)));
      SKEIN_ASSERT_OK(blas_->Enqueue(BlasOpOf(c, data, few.data()), stream()));
      SKEIN_ASSERT_OK(stream().Finish());
      EXPECT_TRUE(Agrees(RowsOf(c, Decoded(out_dtype, few)), ExpectedOf(c, data)));
    }
  }
}

// The bytes of `memory`, 16 bytes further on.
DeviceBytes MovedBy16(const DeviceBytes& memory) {
  std::vector<std::byte> bytes(static_cast<size_t>(memory.bytes()) + 16, std::byte{0xff});
  memory.Download(bytes.data() + 16, memory.bytes());
  DeviceBytes moved(static_cast<int64_t>(bytes.size()));
  moved.Upload(bytes.data(), moved.bytes());
  return moved;
}
void* Behind16(const DeviceBytes& memory) { return static_cast<char*>(memory.data()) + 16; }

TEST_F(BlasLinearTest, NeedsNoMoreThan16BytesOfAlignment) {
  for (const Case& c : BlasCases()) {
    SCOPED_TRACE(c.Name());
    const Data data(c);
    const DeviceBytes in = MovedBy16(data.device_in);
    const DeviceBytes weight = MovedBy16(data.device_weight);
    const DeviceBytes out(16 + DTypeBytes(c.out_dtype, c.rows * (c.n + c.pad)));
    BlasLinear op = BlasOpOf(c, data, Behind16(out));
    op.in = Behind16(in);
    op.weight = Behind16(weight);
    SKEIN_ASSERT_OK(blas_->Enqueue(op, stream()));
    SKEIN_ASSERT_OK(stream().Finish());
    std::vector<float> written = Decoded(c.out_dtype, out);
    written.erase(written.begin(), written.begin() + 16 / DTypeBytes(c.out_dtype, 1));
    EXPECT_TRUE(Agrees(RowsOf(c, written), ExpectedOf(c, data)));
  }
}

TEST_F(BlasLinearTest, RefusesWhatDoesNotFit) {
  const Case c = {.rows = 2, .n = 8, .k = 16};
  const Data data(c);
  const BlasLinear good = BlasOpOf(c, data, data.device_residual.data());
  const auto refuses = [&](auto change, const char* message,
                           absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    BlasLinear op = good;
    change(op);
    EXPECT_THAT(blas_->Enqueue(op, stream()), StatusIs(code, testing::HasSubstr(message)));
  };
  refuses([](BlasLinear& op) { op.k = 12; }, "multiples of 8");
  refuses([](BlasLinear& op) { op.weight_stride = 20; }, "multiples of 8");
  refuses([](BlasLinear& op) { op.in = static_cast<const char*>(op.in) + 2; }, "16-byte");
  refuses([](BlasLinear& op) { op.dtype = DType::kF32; }, "BF16 or F16",
          absl::StatusCode::kUnimplemented);
  refuses([](BlasLinear& op) { op.out_dtype = DType::kF16; }, "BF16 or F16",
          absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace skein::kernels::cuda
