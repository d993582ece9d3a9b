#include "worker/engine/step_order.h"

#include <cmath>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "serving/sampling_fields.h"

namespace skein::worker {
namespace {

// One Visit per struct serves both directions: `archive(field)` writes or reads it.
class Writer {
 public:
  template <typename T>
  void operator()(const T& value) {
    bytes_.Put(value);
  }
  void operator()(const std::string& value) { bytes_.Put(std::string_view(value)); }
  template <typename Items, typename Fn>
  void List(const Items& list, Fn&& visit) {
    bytes_.Put(static_cast<uint64_t>(list.size()));
    for (const auto& item : list) visit(item);
  }
  std::string Take() { return bytes_.Take(); }

 private:
  ByteWriter bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  void operator()(T& value) {
    bytes_.Get(value);
  }
  template <typename Items, typename Fn>
  void List(Items& list, Fn&& visit) {
    uint64_t size = 0;
    bytes_.Get(size);
    list.clear();
    // Grows as items are read: a corrupt size ends at the message's end, not in a huge allocation.
    for (uint64_t i = 0; i < size && bytes_.ok(); ++i) visit(list.emplace_back());
  }
  bool Done() const { return bytes_.Done(); }

 private:
  ByteReader bytes_;
};

template <typename Archive, typename Params>
void VisitSampling(Archive& archive, Params& params) {
  serving::SamplingFields::ForEach([&](const auto& field) { archive(params.*field.member); });
  archive(params.answer);
  archive.List(params.logit_bias, [&](auto& bias) {
    archive(bias.id);
    archive(bias.bias);
  });
  archive(params.stop_ids);
  archive.List(params.dry_breakers, [&](auto& breaker) { archive(breaker); });
}

// No mu is written as NaN, which mirostat never gives.
void Visit(Writer& archive, const std::optional<float>& mu) {
  archive(mu.value_or(std::numeric_limits<float>::quiet_NaN()));
}
void Visit(Reader& archive, std::optional<float>& mu) {
  float value = 0;
  archive(value);
  if (!std::isnan(value)) mu = value;
}

// No length is written as -1.
void Visit(Writer& archive, const std::optional<int64_t>& length) { archive(length.value_or(-1)); }
void Visit(Reader& archive, std::optional<int64_t>& length) {
  int64_t value = 0;
  archive(value);
  if (value != -1) length = value;
}

template <typename Archive, typename Order>
void VisitOrder(Archive& archive, Order& order) {
  archive(order.step);
  archive.List(order.starts, [&](auto& start) {
    archive(start.slot);
    archive(start.prompt_of);
    archive(start.prompt);
    archive(start.output);
    Visit(archive, start.mu);
    VisitSampling(archive, start.sampling);
  });
  archive.List(order.copies, [&](auto& copy) {
    archive(copy.kind);
    archive(copy.from);
    archive(copy.to);
  });
  archive.List(order.updates, [&](auto& update) {
    archive(update.slot);
    Visit(archive, update.length);
    Visit(archive, update.mu);
    archive(update.first_page);
    archive(update.pages);
  });
  archive.List(order.micro_batches, [&](auto& batch) {
    archive.List(batch, [&](auto& chunk) {
      archive(chunk.slot);
      archive(chunk.tokens);
      archive(chunk.draws);
      archive(chunk.prompt_logprobs);
      archive(chunk.pooled);
    });
  });
}

template <typename Archive, typename Token>
void VisitToken(Archive& archive, Token& token) {
  archive(token.id);
  archive(token.logprob);
  archive(token.mu);
  archive.List(token.top_logprobs, [&](auto& top) {
    archive(top.id);
    archive(top.logprob);
  });
}

template <typename Archive, typename Result>
void VisitSampled(Archive& archive, Result& result) {
  archive.List(result.sampled, [&](auto& row) {
    archive(row.slot);
    archive.List(row.tokens, [&](auto& token) { VisitToken(archive, token); });
    archive(row.error);
  });
  archive.List(result.prompt_logprobs, [&](auto& piece) {
    archive(piece.slot);
    archive(piece.first);
    archive.List(piece.tokens, [&](auto& token) { VisitToken(archive, token); });
    archive(piece.error);
  });
  archive.List(result.pooled, [&](auto& pooled) {
    archive(pooled.slot);
    archive(pooled.rows);
    archive(pooled.sum);
  });
}

}  // namespace

std::string EncodeStop() { return std::string(1, static_cast<char>(MessageKind::kStop)); }

absl::StatusOr<MessageKind> KindOf(std::string_view bytes) {
  const auto kind = bytes.empty() ? MessageKind() : static_cast<MessageKind>(bytes[0]);
  switch (kind) {
    case MessageKind::kOrder:
    case MessageKind::kStop:
    case MessageKind::kResult:
      return kind;
  }
  return absl::InternalError(
      absl::StrCat("a control message of ", bytes.size(), " bytes is of no known kind"));
}

std::string Encode(const StepOrder& order) {
  Writer writer;
  writer(MessageKind::kOrder);
  VisitOrder(writer, order);
  return writer.Take();
}

std::string Encode(const StepResult& result) {
  Writer writer;
  writer(MessageKind::kResult);
  writer(result.step);
  writer(static_cast<int32_t>(result.status.code()));
  writer(std::string(result.status.message()));
  VisitSampled(writer, result);
  return writer.Take();
}

absl::StatusOr<StepOrder> DecodeStepOrder(std::string_view bytes) {
  Reader reader(bytes);
  StepOrder order;
  MessageKind kind;
  reader(kind);
  VisitOrder(reader, order);
  if (kind != MessageKind::kOrder || !reader.Done()) {
    return absl::InternalError(
        absl::StrCat("a control message of ", bytes.size(), " bytes is no step order"));
  }
  return order;
}

absl::StatusOr<StepResult> DecodeStepResult(std::string_view bytes) {
  Reader reader(bytes);
  StepResult result;
  int32_t code = 0;
  std::string message;
  MessageKind kind;
  reader(kind);
  reader(result.step);
  reader(code);
  reader(message);
  VisitSampled(reader, result);
  if (kind != MessageKind::kResult || !reader.Done()) {
    return absl::InternalError(
        absl::StrCat("a control message of ", bytes.size(), " bytes is no step result"));
  }
  result.status = absl::Status(static_cast<absl::StatusCode>(code), message);
  return result;
}

}  // namespace skein::worker
