#include "coordinator/page/page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/page/page_files.h"

namespace skein::coordinator {

const std::string& PageHtml() {
  static const std::string html = absl::StrReplaceAll(
      page_files::kHtml, {{"@STYLE@", page_files::kCss}, {"@SCRIPT@", page_files::kJs}});
  return html;
}

const std::string& PagePolicy() {
  static const std::string policy = absl::StrCat(
      "default-src 'none'; script-src 'sha256-", page_files::kJsSha256, "'; style-src 'sha256-",
      page_files::kCssSha256,
      "'; img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'");
  return policy;
}

}  // namespace skein::coordinator
