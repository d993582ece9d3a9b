#include "client/load/sender.h"

namespace skein::client {

v1::GenerateRequest MakeRequest(const PlannedRequest& planned) {
  v1::GenerateRequest request;
  request.set_model(planned.model);
  request.mutable_prompt_tokens()->mutable_ids()->Assign(planned.prompt.begin(),
                                                         planned.prompt.end());
  request.set_max_tokens(static_cast<uint32_t>(planned.answer_tokens));
  request.mutable_sampling()->set_ignore_eos(true);
  return request;
}

}  // namespace skein::client
