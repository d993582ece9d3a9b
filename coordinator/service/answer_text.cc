#include "coordinator/service/answer_text.h"

namespace skein::coordinator {

std::string AnswerText::Push(int32_t id) {
  return characters_.PushBytes(stops_.Push(tokenizer_->TokenBytes(id)));
}

std::string AnswerText::Finish() {
  std::string text = characters_.PushBytes(stops_.Finish());
  text += characters_.Finish();
  return text;
}

}  // namespace skein::coordinator
