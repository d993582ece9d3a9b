#include "model/template/chat_template.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/status_macros.h"
#include "model/template/ast.h"
#include "model/template/errors.h"
#include "model/template/from_json.h"
#include "model/template/interpreter.h"
#include "model/template/parser.h"
#include "model/template/runtime.h"

namespace skein::model {
namespace {

using Json = nlohmann::ordered_json;

// Sets the variables that the template mentions.
absl::Status SetValues(Runtime& runtime, const Ast& ast, const Json& values, Origin origin,
                       Scope& scope) {
  if (values.is_null()) return absl::OkStatus();
  if (!values.is_object()) return Invalid("a template's values are no object");
  absl::flat_hash_map<std::string_view, NameId> ids;
  for (size_t i = 0; i < ast.names.size(); ++i) ids.emplace(ast.names[i], static_cast<NameId>(i));
  for (auto member = values.begin(); member != values.end(); ++member) {
    const auto id = ids.find(member.key());
    if (id == ids.end()) continue;
    SKEIN_ASSIGN_OR_RETURN(Value value, FromJson(runtime, *member, origin));
    scope.Set(id->second, std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<Text> RenderIn(Runtime& runtime, const Ast& ast, const Json& user_values,
                              const Json& trusted) {
  const auto root = std::make_shared<Scope>();
  SKEIN_RETURN_IF_ERROR(SetValues(runtime, ast, user_values, Origin::kUser, *root));
  SKEIN_RETURN_IF_ERROR(SetValues(runtime, ast, trusted, Origin::kTemplate, *root));
  return Interpreter(ast, runtime).Run(root);
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const Ast> ast) : ast_(std::move(ast)) {}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  absl::StatusOr<Ast> ast = ParseTemplate(source);
  if (!ast.ok()) return WithoutMarks(ast.status());
  return ChatTemplate(std::make_shared<const Ast>(*std::move(ast)));
}

absl::StatusOr<RenderedText> ChatTemplate::Render(const Json& user_values, const Json& trusted,
                                                  absl::Time now,
                                                  const RenderLimits& limits) const {
  Runtime runtime(limits, now);
  const absl::StatusOr<Text> text = RenderIn(runtime, *ast_, user_values, trusted);
  if (!text.ok()) return WithoutMarks(text.status());
  return RenderedText{text->bytes(), text->user()};
}

}  // namespace skein::model
