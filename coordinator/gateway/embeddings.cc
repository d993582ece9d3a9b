#include "coordinator/gateway/embeddings.h"

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "coordinator/gateway/api_answer.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/prompt_fields.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

constexpr int64_t kMaxInputs = 2048;  // OpenAI's limit
// Of one request; the others wait here, so that a large one leaves places in the queue.
constexpr int64_t kMostAtOnce = 32;

// As a file of numbers on a little-endian machine has them.
std::string Base64(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    const auto word = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift);
  }
  return absl::Base64Escape(bytes);
}

class EmbeddingFormat final : public ApiFormat {
 public:
  EmbeddingFormat(bool base64, std::string model, const AnswerName& name)
      : ApiFormat("embd-", name), base64_(base64), model_(std::move(model)) {}

  Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) override {
    Json list = Json::array();
    for (const Choice& choice : choices) {
      list.push_back(
          {{"object", "embedding"},
           {"index", choice.index},
           {"embedding", base64_ ? Json(Base64(choice.embedding)) : Json(choice.embedding)}});
    }
    return {{"object", "list"},
            {"data", std::move(list)},
            {"model", model_},
            {"usage", {{"prompt_tokens", usage.prompt}, {"total_tokens", usage.prompt}}}};
  }

  // Embeddings are not streamed.
  void Piece(const Choice&, const TokenUsage&, EventStream&) override {}
  void End(const TokenUsage&, EventStream&) override {}

 private:
  const bool base64_;
  const std::string model_;
};

// One of two words; the first where the field is absent.
bool IsSecond(BodyReader& body, std::string_view field, std::string_view first,
              std::string_view second) {
  const std::string word = body.String(field).value_or(std::string(first));
  if (word != first && word != second) {
    body.Fail(field, std::string("\"") + std::string(first) + "\" or \"" + std::string(second) +
                         "\" is expected");
  }
  return word == second;
}

}  // namespace

std::unique_ptr<HttpAnswer> Embed(const json& body, const ServedModel& model,
                                  InferenceService* service, const ApiCall& call) {
  BodyReader reader(body);
  ApiRequest request = {.input = "input", .most_at_once = kMostAtOnce};
  request.common.model = model.name;
  const bool last = IsSecond(reader, "pooling", "mean", "last");
  request.common.embedding = {.pooling = last ? serving::Pooling::kLast : serving::Pooling::kMean,
                              .normalized = reader.Bool("normalize").value_or(true)};
  const bool base64 = IsSecond(reader, "encoding_format", "float", "base64");
  if (reader.Find("dimensions") != nullptr) {
    reader.Fail("dimensions", "is not supported: the vectors are of the model's hidden size");
  }
  request.prompts = ReadPrompts(reader, request.input, kMaxInputs);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return Answer(request, std::make_unique<EmbeddingFormat>(base64, model.name, call.name), service,
                call);
}

}  // namespace skein::coordinator
