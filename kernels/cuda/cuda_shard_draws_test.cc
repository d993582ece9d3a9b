// Draws of shards, each of which has half of the logits: both draw what the sampler draws from the
// whole rows.
#include <cuda_runtime_api.h>

#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/backend_testing.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_draws_testing.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {
namespace {

// Two shards' collectives, which give a stream nothing: they wait for it.
class Pair {
 public:
  class End final : public Collectives {
   public:
    End(Pair& pair, int shard) : pair_(pair), shard_(shard) {}
    absl::Status AllReduce(View data, Stream stream) override {
      EXPECT_EQ(data.dtype, DType::kF32);
      std::vector<float>& own = pair_.floats_[shard_];
      own.resize(data.elements());
      const auto bytes = static_cast<size_t>(data.bytes());
      EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.handle)), cudaSuccess);
      EXPECT_EQ(cudaMemcpy(own.data(), data.data, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
      pair_.barrier_.arrive_and_wait();
      std::vector<float> sum = pair_.floats_[0];
      EXPECT_EQ(sum.size(), pair_.floats_[1].size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += pair_.floats_[1][i];
      pair_.barrier_.arrive_and_wait();
      EXPECT_EQ(cudaMemcpy(data.data, sum.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
      return absl::OkStatus();
    }
    absl::Status AllGather(ConstView in, View out, Stream) override {
      pair_.gathered_[shard_] = in;
      ++gathers;
      pair_.barrier_.arrive_and_wait();
      for (int shard = 0; shard < 2; ++shard) {
        const ConstView from = pair_.gathered_[shard];
        std::memcpy(static_cast<char*>(out.data) + shard * from.bytes(), from.data,
                    static_cast<size_t>(from.bytes()));
      }
      pair_.barrier_.arrive_and_wait();
      return absl::OkStatus();
    }

    int gathers = 0;  // by which hosts draw

   private:
    Pair& pair_;
    const int shard_;
  };
  End ends[2] = {{*this, 0}, {*this, 1}};

 private:
  std::barrier<> barrier_{2};
  std::vector<float> floats_[2];
  ConstView gathered_[2];
};

class ShardDrawsTest : public CudaBackendTest {
 protected:
  // What a shard gave, by batch.
  struct Given {
    std::vector<BatchResult> results;
    std::vector<std::vector<float>> logits;  // its part
    std::vector<int> gathers;                // up to the batch's end
  };

  // Runs them on two shards, and expects the sampler's draws of both.
  void RunAndCheck(const std::vector<Batch>& batches, const Masks& masks, bool deterministic) {
    Pair pair;
    std::vector<std::unique_ptr<Layer>> layers(2);
    given_.assign(2, {});
    const auto run = [&](int shard) {
      layers[shard] = std::make_unique<Layer>(*MakeCudaBackend({.decode = DecodeForm::kGraph}),
                                              &pair.ends[shard], KvDType::kBF16, DType::kBF16,
                                              /*window=*/0, shard, 2, deterministic);
      Executable& executable = layers[shard]->executable();
      for (const Batch& batch : batches) {
        executable.batch(0) = batch;
        for (const BatchSequence& sequence : batch.sequences) {
          if (sequence.masked) executable.SetMask(0, sequence.slot, masks.at(sequence.slot));
        }
        const absl::StatusOr<Ticket> ticket = executable.Enqueue(0);
        SKEIN_EXPECT_OK(ticket.status());
        SKEIN_EXPECT_OK(executable.Wait(*ticket, kHostStream, absl::InfiniteFuture()).status());
        given_[shard].results.push_back(executable.result(0));
        given_[shard].logits.push_back(layers[shard]->Logits(batch.outputs()));
        given_[shard].gathers.push_back(pair.ends[shard].gathers);
      }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    for (const Given& shard : given_) {
      Followed followed;
      for (size_t b = 0; b < batches.size(); ++b) {
        SCOPED_TRACE(testing::Message() << "batch " << b);
        std::vector<float> whole;
        const auto row = [&](int64_t r) {
          whole.clear();
          for (const Given& of : given_) {
            const auto part = of.logits[b].begin() + r * (kColumns / 2);
            whole.insert(whole.end(), part, part + kColumns / 2);
          }
          return absl::MakeConstSpan(whole).first(kVocabulary);
        };
        Masks used;
        for (const BatchSequence& sequence : batches[b].sequences) {
          if (sequence.masked) used[sequence.slot] = masks.at(sequence.slot);
        }
        followed.Check(batches[b], shard.results[b], row, used);
      }
    }
  }

  std::vector<Given> given_;
};

// More draws than shards exchange at once, with a mask, guesses, and a prompt that is told of.
std::vector<Batch> ManyDraws() {
  const std::vector<serving::SamplingParams> kinds = {
      {.temperature = 0},
      {.temperature = 0.9f, .top_p = 0.9f, .seed = 4},
      kStateful,
      {.temperature = 0, .logprobs = 3},
      {.repetition_penalty = 1.4f, .temperature = 0.3f, .seed = 6, .dry_multiplier = 1}};
  constexpr int32_t kSlots = 39;
  std::vector<Batch> batches(3);
  std::vector<int32_t> slots;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    serving::SamplingParams params = kinds[slot % 5];
    params.seed += slot;
    CudaBackendTest::Join(batches[0], CudaBackendTest::Start(slot, 3 + slot % 5, slot, params));
    slots.push_back(slot);
  }
  Batch told = CudaBackendTest::Start(kSlots, 12, kSlots);
  told.sequences[0].outputs = 12;
  told.sequences[0].prompt_logprobs = 2;
  CudaBackendTest::Join(batches[0], told);
  batches[1] = CudaBackendTest::Decode(slots, kNewestToken);
  // Wrong ones, most likely.
  batches[2] = CudaBackendTest::Decode({1, 0, 7, 4, 3}, kNewestToken);
  batches[2].token_ids.clear();
  for (BatchSequence& sequence : batches[2].sequences) {
    sequence.rows = sequence.outputs = 3;
    sequence.guesses = 2;
    batches[2].token_ids.insert(batches[2].token_ids.end(), {kNewestToken, 5, 6});
  }
  batches.push_back(CudaBackendTest::Decode(slots, kNewestToken));
  for (Batch& batch : batches) {
    for (BatchSequence& sequence : batch.sequences) sequence.masked = sequence.slot == 8;
  }
  return batches;
}

const Masks kMasks = {{8, std::vector<uint32_t>(MaskWords(kVocabulary), 0x11111111u)}};

TEST_F(ShardDrawsTest, DevicesDrawFromWholeRows) {
  for (const bool deterministic : {false, true}) {
    RunAndCheck(ManyDraws(), kMasks, deterministic);
    for (const Given& shard : given_) {
      EXPECT_EQ(shard.gathers.back(), 0) << "the host drew what devices can";
    }
  }
}

TEST_F(ShardDrawsTest, HostsDrawBesideDevices) {
  std::vector<Batch> batches = ManyDraws();
  for (SlotStart& start : batches[0].starts) {
    if (start.slot % 7 < 2) start.sampling = kByHost;
  }
  RunAndCheck(batches, kMasks, /*deterministic=*/false);
  for (const Given& shard : given_) EXPECT_GT(shard.gathers.back(), 0);
}

}  // namespace
}  // namespace skein::kernels
