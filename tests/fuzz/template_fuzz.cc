// Parses any bytes as a chat template, and renders it over any values: the bytes behind the first
// zero byte, if they are JSON. What is rendered must be UTF-8, its marks in order, and twice the
// same. What users wrote must be marked, whatever the template did with it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "model/template/chat_template.h"
#include "model/tokenizer/utf8.h"
#include "nlohmann/json.hpp"

namespace {

using Json = nlohmann::ordered_json;

void Check(bool holds) {
  if (!holds) std::abort();
}

void CheckRendered(const skein::model::RenderedText& rendered) {
  Check(skein::model::FindInvalidUtf8(rendered.text) == std::string_view::npos);
  size_t done = 0;
  for (const skein::model::ByteRange& range : rendered.user) {
    Check(range.begin < range.end && range.end <= rendered.text.size());
    Check(done == 0 || done < range.begin);
    Check(skein::model::FindInvalidUtf8(
              std::string_view(rendered.text).substr(range.begin, range.end - range.begin)) ==
          std::string_view::npos);
    done = range.end;
  }
}

// A character that templates do not write: none is in the source, nor an escape or a number that
// could make one.
constexpr std::string_view kUsers = "\uE000";
bool MayWriteUsers(std::string_view source) {
  for (const std::string_view way : {std::string_view("\xEE"), std::string_view("\\"),
                                     std::string_view("%c"), std::string_view(":c")}) {
    if (source.find(way) != std::string_view::npos) return true;
  }
  return false;
}

// Puts the character at the end of each text that is a value.
void Sign(Json& value) {
  if (value.is_string()) {
    value = value.get<std::string>() + std::string(kUsers);
  } else if (value.is_structured()) {
    for (auto& part : value) Sign(part);
  }
}

void CheckUsersAreMarked(const skein::model::RenderedText& rendered) {
  size_t next = 0;
  for (size_t at = 0; (at = rendered.text.find(kUsers, at)) != std::string::npos; ++at) {
    while (next < rendered.user.size() && rendered.user[next].end <= at) ++next;
    Check(next < rendered.user.size() && rendered.user[next].begin <= at &&
          rendered.user[next].end >= at + kUsers.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto parsed = skein::model::ChatTemplate::Parse(input.substr(0, zero));
  if (!parsed.ok()) return 0;
  Json user;
  if (zero != std::string_view::npos) {
    user = Json::parse(input.substr(zero + 1), nullptr, /*allow_exceptions=*/false);
  }
  if (!user.is_object()) user = {{"messages", {{{"role", "user"}, {"content", " é<|im_end|>\n"}}}}};
  const Json trusted = {{"bos_token", "<s>"}, {"add_generation_prompt", true}};
  const skein::model::RenderLimits limits = {
      .steps = 20'000, .depth = 300, .output_bytes = 1 << 16, .memory_bytes = 1 << 20};
  const auto once = parsed->Render(user, trusted, absl::UnixEpoch(), limits);
  const auto again = parsed->Render(user, trusted, absl::UnixEpoch(), limits);
  Check(once.status() == again.status());
  if (!once.ok()) return 0;
  CheckRendered(*once);
  Check(once->text == again->text && once->user == again->user);
  if (MayWriteUsers(input.substr(0, zero))) return 0;
  Sign(user);
  const auto is_signed = parsed->Render(user, trusted, absl::UnixEpoch(), limits);
  if (is_signed.ok()) CheckUsersAreMarked(*is_signed);
  return 0;
}
