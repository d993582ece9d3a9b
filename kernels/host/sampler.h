// Draws the tokens of a Program's logits on the host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/host/memory.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/batch.h"
#include "kernels/ops/program.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels {

// Tokens drawn behind a prompt of so many tokens that stay where a slot keeps `length` positions:
// the last of these gave the token at position `length`, which stays.
constexpr int64_t DrawsLeft(int64_t length, int64_t prompt) {
  return length + 1 > prompt ? length + 1 - prompt : 0;
}

// Keeps what each slot's draws depend on. Not thread-safe.
class Sampler {
 public:
  // `collectives` joins the shards that logits are spread over; null where there is one.
  static absl::StatusOr<Sampler> Create(const Program& program, const Limits& limits,
                                        Collectives* collectives);

  // Takes in the batch's starts. InvalidArgument when a prompt is to be shared that is not there.
  absl::Status Update(const Batch& batch);
  // Forgets what was drawn from the positions that an update of an Updated batch takes back.
  void TakeBack(const SlotUpdate& update);

  // Gives access to a batch that has run.
  struct Rows {
    // Returns this shard's logits of an output.
    absl::FunctionRef<absl::Span<const float>(int64_t output)> logits;
    // Returns the draw that devices have made of an output, or what they tell of the prompt's next
    // token, every shard's the same, else null.
    absl::FunctionRef<const DeviceDraw*(int64_t output)> made;
    // Returns the position of a sequence's first row.
    absl::FunctionRef<int64_t(int64_t sequence)> first_position;
    // Calls its second argument with every number below the first, on the threads that compute.
    absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)> for_each;
    // Waits for a slot's mask and returns it. Valid until the draws are made.
    absl::FunctionRef<absl::StatusOr<absl::Span<const uint32_t>>(int32_t slot)> mask;
  };
  // Errors are those of the collectives and the masks; InvalidArgument for a mask of another size.
  absl::Status Sample(const Batch& batch, const Rows& rows, BatchResult& result);

 private:
  struct Slot {
    std::vector<int32_t> prompt;
    std::vector<int32_t> output;
    std::optional<float> mu;
    serving::SamplingParams sampling;
    absl::Status status;  // what CheckTokens says of its tokens
  };
  // A row with the question that is put to it.
  struct Row {
    RowQuestion question;
    int64_t output = 0;
    int32_t slot = 0;
    bool draws = false;
    int32_t guess = -1;  // the row's own token, where that is a guess
    bool valid = false;  // its slot's status is OK
    const DeviceDraw* made = nullptr;
    bool gathers = false;  // it needs all logits in one place
    // Whether it is answered from logits that are here.
    bool open() const { return valid && made == nullptr; }
    int64_t cells = 0;  // where its summary begins
    absl::StatusOr<serving::SampledToken> answer = serving::SampledToken{};
  };

  Sampler() = default;
  absl::Status Ask(const Batch& batch, const Rows& rows, BatchResult& result);
  // `tokens` are those of the sequence's rows; `outputs` counts the batch's up to its last row.
  absl::Status AskForDraws(const BatchSequence& sequence, absl::Span<const int32_t> tokens,
                           int64_t outputs, const Rows& rows);
  void AskOfPrompt(const BatchSequence& sequence, int64_t first_position, int64_t first_output,
                   BatchResult& result);
  // Those that devices have drawn, and without other shards all.
  void AnswerAlone(const Rows& rows);
  absl::Status AnswerBySummaries(const Rows& rows);
  absl::Status AnswerByGathering(const Rows& rows);
  std::string ErrorOf(const Row& row) const;
  void TakeDraw(Row& row, BatchResult& result);
  void TakeOfPrompt(Row& row, PromptLogprobs& told);

  int64_t vocabulary_ = 0;
  VocabularyPart part_;
  int64_t stride_ = 0;  // tokens of a shard's part
  int32_t shards_ = 1;
  Collectives* collectives_ = nullptr;
  std::vector<Slot> slots_;
  HostMemory gathered_;  // some rows: this shard's logits, all by shard, all by row

  // These belong to one batch; they are kept for their memory.
  std::vector<Row> rows_;
  std::vector<Row*> gathering_;
  std::vector<SummaryCell> own_, all_;
  std::vector<const SummaryCell*> summaries_;
};

}  // namespace skein::kernels
