#include "coordinator/gateway/gatekeeper.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/printable.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

// Who only looks whether the server lives knows no key, nor does a browser that opens the page,
// which asks for one.
constexpr std::string_view kOpenPaths[] = {"/", "/health", "/ready"};
// Asked again and again by whoever looks on: a key is needed, and nothing of its limits is used.
constexpr std::string_view kUncountedPaths[] = {"/v1/status", "/v1/picture"};

template <size_t kSize>
bool IsOneOf(const std::string_view (&paths)[kSize], std::string_view path) {
  return std::find(std::begin(paths), std::end(paths), path) != std::end(paths);
}

// "Name:8000" or "[::1]:8000" without the port.
std::string HostOf(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return absl::AsciiStrToLower(std::string(host.substr(0, colon)));
}

// OpenAI's way, or Anthropic's.
std::string_view KeyOf(const HttpRequest& request) {
  const std::string_view said = request.Header("Authorization");
  absl::string_view bearer(said.data(), said.size());
  if (bearer.size() > 7 && absl::StartsWithIgnoreCase(bearer, "Bearer ")) {
    bearer = absl::StripAsciiWhitespace(bearer.substr(7));
    return {bearer.data(), bearer.size()};
  }
  return request.Header("x-api-key");
}

ApiError ErrorOf(const Excess& excess) {
  if (excess.again_after == absl::InfiniteDuration()) {
    return {.status = 403,
            .message = absl::StrCat("this key may use ", excess.allowed,
                                    " tokens a minute, and the prompt alone goes beyond that"),
            .code = "prompt_too_long_for_key"};
  }
  const int64_t seconds =
      std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(excess.again_after, absl::Seconds(1))));
  return {.status = 429,
          .message =
              absl::StrCat("this key's limit is ", excess.limit, "=", excess.allowed,
                           ", and this would be ", excess.wanted, "; try again in ", seconds, " s"),
          .code = "rate_limit_exceeded",
          .retry_after_s = seconds};
}

class MeteredAnswer final : public HttpAnswer {
 public:
  MeteredAnswer(std::unique_ptr<HttpAnswer> answer, std::shared_ptr<Admission> admission)
      : answer_(std::move(answer)), admission_(std::move(admission)) {}
  // What was made for a client that did not wait for it counts, too.
  ~MeteredAnswer() override {
    if (over_) return;
    answer_->Leave();
    try {
      admission_->AddAnswer(answer_->Next().answer_tokens);
    } catch (const std::exception& thrown) {
      spdlog::error("tokens of an answer were not counted: {}", thrown.what());
    }
  }

  Part Next() override {
    if (over_) return {};
    Part part = answer_->Next();
    if (std::optional<Part> refusal = Count(part)) part = *std::move(refusal);
    begun_ = begun_ || part.head.has_value();
    over_ = part.last;
    // Whoever has the whole answer may ask for the next one. One that is kept goes on without its
    // reader, and holds the admission until its own end.
    if (over_) admission_.reset();
    return part;
  }

 private:
  // What is sent instead of the part, where its prompt is refused: then nothing of it counts.
  std::optional<Part> Count(const Part& part) {
    if (part.prompt_tokens > 0) {
      const std::optional<Excess> excess = admission_->AddPrompt(part.prompt_tokens);
      if (excess.has_value() && !begun_) {
        answer_->Discard();
        answer_.reset();
        return ToAnswer(ErrorOf(*excess))->Next();
      }
      if (excess.has_value()) admission_->AddAnswer(part.prompt_tokens);  // too late to refuse it
    }
    if (part.answer_tokens > 0) admission_->AddAnswer(part.answer_tokens);
    return std::nullopt;
  }

  std::unique_ptr<HttpAnswer> answer_;
  std::shared_ptr<Admission> admission_;
  bool begun_ = false;
  bool over_ = false;
};

}  // namespace

Gatekeeper::Gatekeeper(const HostPort& listen, const Options& options) : access_(options.access) {
  for (const std::string& host : options.allowed_hosts) hosts_.insert(HostOf(host));
  if (listen.IsLoopback()) hosts_.insert({"localhost", "127.0.0.1", "[::1]"});
  if (!hosts_.empty()) hosts_.insert(absl::AsciiStrToLower(listen.host));
}

bool Gatekeeper::AllowsHost(std::string_view host) const {
  return hosts_.empty() || host.empty() || hosts_.contains(HostOf(host));
}

bool Gatekeeper::Allows(const serving::ApiKey* key, const ServedModel& model) {
  return key == nullptr || key->models.empty() ||
         std::any_of(key->models.begin(), key->models.end(),
                     [&](const std::string& name) { return HasName(model, name); });
}

ApiError Gatekeeper::NotAllowed(const std::string& what) {
  return {.status = 403,
          .message = absl::StrCat("this API key may not use ", what),
          .code = "model_not_allowed"};
}

Gatekeeper::Verdict Gatekeeper::Judge(const HttpRequest& request,
                                      const std::vector<HostedModel>& models) const {
  std::shared_ptr<const serving::ApiKey> key;
  const auto refuse = [&key](int status, std::string message, std::string code) {
    return Verdict{
        ApiError{.status = status, .message = std::move(message), .code = code}, {}, key};
  };
  if (const std::string_view host = request.Header("Host"); !AllowsHost(host)) {
    return refuse(403,
                  absl::StrCat("this server does not answer to the name '",
                               Printable(host, kMaxNameBytes), "' (--http-allowed-host adds it)"),
                  "host_not_allowed");
  }
  if (access_ == nullptr || IsOneOf(kOpenPaths, request.path)) return {};
  const std::string_view sent = KeyOf(request);
  if (sent.empty()) {
    return refuse(401, "an API key is expected, as Authorization: Bearer KEY or x-api-key: KEY",
                  "invalid_api_key");
  }
  key = access_->Find(sent);
  if (key == nullptr) return refuse(401, "there is no such API key", "invalid_api_key");
  if (key->disabled) return refuse(403, "this API key is disabled", "key_disabled");
  const auto allowed = [&](const HostedModel& hosted) { return Allows(key.get(), *hosted.model); };
  if (!models.empty() && std::none_of(models.begin(), models.end(), allowed)) {
    return {NotAllowed("what is served here"), nullptr, std::move(key)};
  }
  if (IsOneOf(kUncountedPaths, request.path) || request.path.starts_with(kAnswersPath)) {
    return {std::nullopt, nullptr, std::move(key)};
  }
  Access::Verdict admitted = access_->Admit(key);
  if (admitted.excess.has_value()) return {ErrorOf(*admitted.excess), nullptr, std::move(key)};
  return {std::nullopt, std::move(admitted.admission), std::move(key)};
}

std::unique_ptr<HttpAnswer> Metered(std::unique_ptr<HttpAnswer> answer,
                                    std::shared_ptr<Admission> admission) {
  if (admission == nullptr) return answer;
  return std::make_unique<MeteredAnswer>(std::move(answer), std::move(admission));
}

}  // namespace skein::coordinator
