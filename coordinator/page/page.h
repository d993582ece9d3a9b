// The status page that GET / answers with: one self-contained HTML file, made of page.html,
// page.css and page.js. It has no data of its own: it asks /v1/status, /v1/picture, /v1/models and
// the routes that generate, and for an API key where these ask for one.
#pragma once

#include <string>

namespace skein::coordinator {

const std::string& PageHtml();

// Content-Security-Policy of the page: the script and the style that it holds, by their hashes, and
// nothing else; it may ask where it is from alone.
const std::string& PagePolicy();

}  // namespace skein::coordinator
