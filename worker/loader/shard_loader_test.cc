#include "worker/loader/shard_loader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted_numbers.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/reference/reference_backend.h"
#include "model/config/model_config.h"
#include "model/synthetic/synthetic.h"
#include "parallel/plan/shard.h"
#include "parallel/program/rank_program.h"

namespace skein::worker {
namespace {

// The embedding's 5 MB are read in two pieces.
model::ModelConfig Config() {
  return {.architecture = "LlamaForCausalLM",
          .vocab_size = 40960,
          .hidden_size = 64,
          .intermediate_size = 96,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .max_position_embeddings = 128};
}

// Another source with one bit inverted, in the byte at `offset` of the tensor as it lies in a file.
class Flipped final : public model::TensorSource {
 public:
  Flipped(const model::TensorSource& source, std::string tensor, int64_t offset)
      : source_(source), tensor_(std::move(tensor)), offset_(offset) {}

  std::string_view description() const override { return source_.description(); }
  absl::Span<const model::TensorInfo> tensors() const override { return source_.tensors(); }

 protected:
  absl::Status ReadChecked(const model::TensorInfo& tensor, absl::Span<const Range> slice,
                           absl::Span<std::byte> out) const override {
    SKEIN_RETURN_IF_ERROR(source_.Read(tensor, slice, out));
    if (tensor.name != tensor_) return absl::OkStatus();
    // By rows of the last dimension; a vector is one row.
    const int64_t row_bytes = DTypeBytes(tensor.dtype, tensor.shape.back());
    const int64_t row = offset_ / row_bytes;
    const Range rows = slice.size() == 1 ? Range{0, 1} : slice[0];
    const int64_t begin = DTypeBytes(tensor.dtype, slice.back().begin);
    const int64_t end = DTypeBytes(tensor.dtype, slice.back().end);
    const int64_t column = offset_ % row_bytes;
    if (row < rows.begin || row >= rows.end || column < begin || column >= end) {
      return absl::OkStatus();
    }
    out[(row - rows.begin) * (end - begin) + column - begin] ^= std::byte{1};
    return absl::OkStatus();
  }

 private:
  const model::TensorSource& source_;
  const std::string tensor_;
  const int64_t offset_;
};

class SliceDigestTest : public ::testing::Test {
 protected:
  // By rank of a replica.
  std::vector<std::string> Digests(const model::TensorSource& tensors, int tp_size, int pp_size) {
    std::vector<std::string> digests;
    for (int stage = 0; stage < pp_size; ++stage) {
      for (int shard = 0; shard < tp_size; ++shard) {
        digests.push_back(Digest(tensors, {.tp_size = tp_size,
                                           .tp_rank = shard,
                                           .layers = plan::StageLayers(2, pp_size, stage)}));
      }
    }
    return digests;
  }

  std::string Digest(const model::TensorSource& tensors, const plan::RankProgramSpec& spec) {
    const auto program = plan::BuildRankProgram(Config(), &tensors, spec);
    SKEIN_EXPECT_OK(program);
    const auto shard = LoadShard(tensors, *program, *backend_, {.threads = 2});
    SKEIN_EXPECT_OK(shard);
    return shard->slice_digest;
  }

  // A bit of the first, of the last and of some byte between.
  std::vector<std::unique_ptr<model::TensorSource>> Flips(const model::TensorInfo& tensor) {
    const int64_t bytes = DTypeBytes(tensor.dtype, tensor.elements());
    std::vector<std::unique_ptr<model::TensorSource>> flips;
    for (const int64_t offset : {int64_t{0}, bytes / 3, bytes - 1}) {
      flips.push_back(std::make_unique<Flipped>(*tensors_, tensor.name, offset));
    }
    return flips;
  }

  const std::unique_ptr<model::TensorSource> tensors_ =
      model::MakeSyntheticWeights(Config(), "synthetic:digests");
  const std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
};

TEST_F(SliceDigestTest, AnyByteOfTheModelChangesIt) {
  const std::vector<std::string> before = Digests(*tensors_, 1, 1);
  EXPECT_EQ(Digests(*tensors_, 1, 1), before);
  for (const model::TensorInfo& tensor : tensors_->tensors()) {
    SCOPED_TRACE(tensor.name);
    for (const auto& flipped : Flips(tensor)) EXPECT_NE(Digests(*flipped, 1, 1), before);
  }
}

// The digests of the ranks that do not read it stay.
TEST_F(SliceDigestTest, AByteChangesThatOfTheRanksThatReadIt) {
  const std::vector<std::string> before = Digests(*tensors_, 2, 2);
  // Rows of a matrix whose outputs are split, in the first layer: the first half is shard 0's.
  const std::string query = "model.layers.0.self_attn.q_proj.weight";
  const Flipped first(*tensors_, query, 0);
  const Flipped last(*tensors_, query, DTypeBytes(DType::kBF16, 64 * 64) - 1);
  std::vector<std::string> after = Digests(first, 2, 2);
  EXPECT_NE(after[0], before[0]);
  after[0] = before[0];
  EXPECT_EQ(after, before);
  after = Digests(last, 2, 2);
  EXPECT_NE(after[1], before[1]);
  after[1] = before[1];
  EXPECT_EQ(after, before);
}

TEST_F(SliceDigestTest, NoByteIsMissedBetweenTheRanks) {
  const std::vector<std::string> before = Digests(*tensors_, 2, 2);
  for (const model::TensorInfo& tensor : tensors_->tensors()) {
    SCOPED_TRACE(tensor.name);
    for (const auto& flipped : Flips(tensor)) EXPECT_NE(Digests(*flipped, 2, 2), before);
  }
}

// Weights that keep the rows that come as bytes, and make rows as numbers are defined.
class Kept final : public kernels::Weights {
 public:
  Kept(const kernels::Program& program, bool makes) : Weights(program), makes_(makes) {
    for (const auto& weight : program.weights) {
      bytes_.emplace_back(
          static_cast<size_t>(DTypeBytes(weight.spec.dtype, weight.spec.rows * weight.spec.cols)));
    }
  }
  int64_t bytes() const override { return 0; }
  int64_t bytes(kernels::WeightId) const override { return 0; }
  absl::StatusOr<std::unique_ptr<kernels::Staging>> Stage(int64_t bytes) override {
    return std::make_unique<Bytes>(bytes);
  }
  absl::Status Load(const kernels::WeightRows& rows,
                    std::unique_ptr<kernels::Staging> staged) override {
    loaded_ += rows.count;
    std::copy(staged->bytes().begin(), staged->bytes().end(), Row(rows.weight, rows.first));
    return absl::OkStatus();
  }
  absl::Status Make(const kernels::WeightRows& rows, const CountedRows& numbers) override {
    if (!makes_) return Weights::Make(rows, numbers);
    const int64_t cols = specs()[rows.weight].spec.cols;
    for (int64_t row = 0; row < rows.count; ++row) {
      auto* const to = reinterpret_cast<uint16_t*>(Row(rows.weight, rows.first + row));
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t i = numbers.first + row * numbers.stride + col;
        const uint64_t word = SplitMix64(numbers.seed, static_cast<uint64_t>(i / 8));
        to[col] = FloatToBf16(NumberOfByte(static_cast<uint8_t>(word >> (8 * (i % 8)))));
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<float>> ReadVector(kernels::WeightId) const override {
    return absl::UnimplementedError("nobody reads it");
  }
  absl::Status FinishLoading() override { return absl::OkStatus(); }

  const std::vector<std::vector<std::byte>>& all() const { return bytes_; }
  int64_t loaded() const { return loaded_; }  // rows

 private:
  struct Bytes final : kernels::Staging {
    explicit Bytes(int64_t count) : kept(static_cast<size_t>(count)) {}
    absl::Span<std::byte> bytes() override { return absl::MakeSpan(kept); }
    std::vector<std::byte> kept;
  };
  std::byte* Row(kernels::WeightId weight, int64_t row) {
    const kernels::WeightSpec& spec = specs()[weight].spec;
    return bytes_[weight].data() + DTypeBytes(spec.dtype, row * spec.cols);
  }

  const bool makes_;
  int64_t loaded_ = 0;
  std::vector<std::vector<std::byte>> bytes_;
};

class KeepingBackend final : public kernels::Backend {
 public:
  explicit KeepingBackend(bool makes) : makes_(makes) {}
  std::string_view name() const override { return "keeping"; }
  absl::StatusOr<std::unique_ptr<kernels::Weights>> AllocateWeights(
      const kernels::Program& program) override {
    return std::make_unique<Kept>(program, makes_);
  }
  absl::StatusOr<std::unique_ptr<kernels::KvCache>> AllocateKv(const kernels::KvSpec&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<std::unique_ptr<kernels::Executable>> Compile(const kernels::Program&,
                                                               const kernels::Limits&,
                                                               const kernels::Bindings&) override {
    return absl::UnimplementedError("");
  }

 private:
  const bool makes_;
};

// Slices of rows, of columns, and stacked ones.
TEST(MadeWeightsTest, AreThoseThatAreRead) {
  model::ModelConfig config = Config();
  config.dtype = DType::kBF16;
  const auto tensors = model::MakeSyntheticWeights(config, "synthetic:made");
  for (const int32_t rank : {0, 1}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const plan::RankProgram program,
        plan::BuildRankProgram(config, tensors.get(),
                               {.tp_size = 2, .tp_rank = rank, .layers = {0, 2}}));
    KeepingBackend reads(/*makes=*/false);
    KeepingBackend makes(/*makes=*/true);
    SKEIN_ASSERT_OK_AND_ASSIGN(const LoadedShard read, LoadShard(*tensors, program, reads, {}));
    SKEIN_ASSERT_OK_AND_ASSIGN(const LoadedShard made, LoadShard(*tensors, program, makes, {}));
    const auto& of_read = static_cast<const Kept&>(*read.weights);
    const auto& of_made = static_cast<const Kept&>(*made.weights);
    EXPECT_EQ(of_made.all(), of_read.all());
    EXPECT_LT(of_made.loaded(), 10);  // vectors
    EXPECT_GT(of_read.loaded(), 1000);
    EXPECT_EQ(read.bytes_made, 0);
    EXPECT_GT(made.bytes_made, 1000);
    EXPECT_EQ(made.bytes_made + made.bytes_read, read.bytes_read);
  }
}

}  // namespace
}  // namespace skein::worker
