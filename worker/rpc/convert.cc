#include "worker/rpc/convert.h"

namespace skein::worker {
namespace {

namespace pb = ::skein::cluster::v1;

pb::SequenceOutput::Finish ToProto(Finish finish) {
  switch (finish) {
    case Finish::kNotFinished:
      return pb::SequenceOutput::NOT_FINISHED;
    case Finish::kEos:
      return pb::SequenceOutput::EOS;
    case Finish::kMaxTokens:
      return pb::SequenceOutput::MAX_TOKENS;
    case Finish::kCancelled:
      return pb::SequenceOutput::CANCELLED;
    case Finish::kFailed:
      return pb::SequenceOutput::FAILED;
  }
  return pb::SequenceOutput::FAILED;
}

void FillToken(const kernels::SampledToken& token, pb::Token* out) {
  out->set_id(token.id);
  out->set_logprob(token.logprob);
  for (const kernels::TokenLogprob& top : token.top_logprobs) {
    pb::TokenLogprob* row = out->add_top();
    row->set_id(top.id);
    row->set_logprob(top.logprob);
  }
}

}  // namespace

GenerationRequest FromProto(const pb::NewRequest& request) {
  const pb::Sampling& sampling = request.sampling();
  return {.id = request.request_id(),
          .prompt = {request.prompt().begin(), request.prompt().end()},
          .output = {request.output().begin(), request.output().end()},
          .max_tokens = request.max_tokens(),
          .eos_token_ids = {request.eos_token_ids().begin(), request.eos_token_ids().end()},
          .sampling = {.repetition_penalty = sampling.repetition_penalty(),
                       .presence_penalty = sampling.presence_penalty(),
                       .frequency_penalty = sampling.frequency_penalty(),
                       .temperature = sampling.temperature(),
                       .top_k = sampling.top_k(),
                       .top_p = sampling.top_p(),
                       .min_p = sampling.min_p(),
                       .seed = sampling.seed(),
                       .logprobs = sampling.logprobs()}};
}

pb::StepOutput ToProto(const StepReport& report) {
  pb::StepOutput out;
  for (const SequenceOutput& sequence : report.sequences) {
    pb::SequenceOutput* row = out.add_sequences();
    row->set_request_id(sequence.id);
    for (const kernels::SampledToken& token : sequence.tokens) FillToken(token, row->add_tokens());
    row->set_finish(ToProto(sequence.finish));
    row->set_error(sequence.error);
  }
  out.mutable_load()->set_running(report.load.running);
  out.mutable_load()->set_waiting(report.load.waiting);
  out.mutable_load()->set_free_pages(report.load.free_pages);
  out.mutable_load()->set_total_pages(report.load.total_pages);
  out.mutable_load()->set_steps(report.load.steps);
  return out;
}

}  // namespace skein::worker
