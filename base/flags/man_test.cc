#include "base/flags/man.h"

#include <string>

#include "gtest/gtest.h"

namespace skein {
namespace {

constexpr char kPage[] = R"(.TH PRO-GRAM 1 2026-11-28 "Skein 1.2"
.SH NAME
pro\-gram \- Says "x"
.SH SYNOPSIS
\fBpro\-gram\fR [\fIOPTIONS\fR] \fIFILE\fR [\fICOMMAND\fR]
.SH DESCRIPTION
Says "x".
.PP
.nf
\&.begin
\(aqquoted\(aq \(ga\e\(ha\(ti
.fi
.SH OPTIONS
.TP
\fB\-h\fR, \fB\-\-help\fR
Print this help message and exit.
.TP
\fIFILE\fR
\&...or none.
Required.
.TP
\fB\-\-count\fR \fIINT\fR
A C:\ex\-y.
Default: 7.
Excludes \fB\-\-fast\fR.
.TP
\fB\-\-fast\fR, \fB\-\-no\-fast\fR
Is it.
Excludes \fB\-\-count\fR.
.SH COMMANDS
.SS "pro\-gram do"
Does.
.PP
\fBpro\-gram do\fR [\fIOPTIONS\fR]
.TP
\fB\-h\fR, \fB\-\-help\fR
Print this help message and exit.
.TP
\fB\-\-more\fR
More.
.SH EXIT STATUS
.TP
0
Done.
.TP
1
Failed.
.TP
2
The command line, or the file of
\fB\-\-config\fR, is wrong.
)";

TEST(ManTest, HasAllThatHelpHas) {
  CLI::App app("Says \"x\".");
  app.name("pro-gram");
  int count = 7;
  bool flag = false;
  std::string text;
  app.add_option("FILE", text, "...or none")->required();
  CLI::Option* const option = app.add_option("--count", count, "A C:\\x-y.")->capture_default_str();
  app.add_flag("--fast,!--no-fast", flag, "Is it")->excludes(option);
  app.add_flag("--hidden", flag, "Is it")->group("");
  app.add_subcommand("do", "Does")->add_flag("--more", flag, "More");
  app.footer("\n.begin\n'quoted' `\\^~\n");
  option->type_name("INT");
  std::string page = ManPage(app, "1.2", "2026-11-28");
  EXPECT_EQ(page, kPage);
}

}  // namespace
}  // namespace skein
