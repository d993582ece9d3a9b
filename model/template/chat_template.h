// Chat templates: the Jinja that published models bring along, bounded, and with track kept of
// what users wrote.
//
// Rendered text is that of Jinja2 3.1 as the library transformers sets it up: a sandbox whose
// values never change, trim_blocks and lstrip_blocks, break and continue, {% generation %}, its
// tojson, raise_exception and strftime_now.
//
// Supported: for (else, if, recursive), if, set (also of blocks and of namespaces), macro, call,
// filter, with, raw, generation, break, continue, print; all operators; the functions range, dict,
// namespace, raise_exception, strftime_now; the tests of Jinja; its filters but filesizeformat,
// forceescape, pprint, random, striptags, urlize, wordwrap and xmlattr; methods of str, dict and
// list that change nothing. Refused by name: what is not supported, and the tags include, import,
// from, extends, block, autoescape, trans, do and debug.
//
// Differences: integers have 64 bits, and more is an error; functions, generators and loops cannot
// be printed; generators and a loop's `if` go through all items at once; string literals hold no
// lone surrogates and no \N; a subscript has one part; a tuple that is a key has 16 plain values at
// most; macros have 200 parameters, and calls 200 names, at most.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/template/limits.h"
#include "model/template/text.h"
#include "nlohmann/json_fwd.hpp"

namespace skein::model {

struct Ast;

struct RenderedText {
  std::string text;
  // Bytes that were made of what users wrote: sorted, disjoint, none touches the next. Those are
  // text, whatever special token they look like.
  std::vector<ByteRange> user;
};

// Immutable: copies share the parsed template, any number of threads may render at once.
class ChatTemplate {
 public:
  // InvalidArgument, "line L, column C: ...": a template that Jinja refuses, or that is not
  // supported. Linear in the source, which has 1 MiB at most.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  // Both are objects of named values (or null), and those of `trusted` win. Strings of
  // `user_values` (messages, tools, documents), keys too, are the user's, through every operation;
  // those of `trusted` (bos_token, add_generation_prompt) and of the template are not. What numbers
  // print as is nobody's.
  //
  // InvalidArgument: the template's own message, if it raised one; else "line L, column C: ..." for
  // an operation that fails as it would in Jinja. OutOfRange: an integer beyond 64 bits.
  // ResourceExhausted: a limit, by name. A few microseconds a message.
  absl::StatusOr<RenderedText> Render(const nlohmann::ordered_json& user_values,
                                      const nlohmann::ordered_json& trusted, absl::Time now,
                                      const RenderLimits& limits = {}) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const Ast> ast);

  std::shared_ptr<const Ast> ast_;
};

}  // namespace skein::model
