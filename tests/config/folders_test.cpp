#include "config/folders.h"

#include <catch2/catch.hpp>

namespace troupe {
namespace {

TEST_CASE("messages to others name no folder: of a path its last part is left") {
  CHECK(without_folders("/srv/models/a.gguf: cannot be read") == "a.gguf: cannot be read");
  CHECK(without_folders("/srv/my models/a b.gguf: cannot be read") == "a b.gguf: cannot be read");
  CHECK(without_folders("cannot be read: /srv/a.gguf") == "cannot be read: a.gguf");
  CHECK(without_folders("the chat template '/etc/my troupe/x.jinja', line 3: no") ==
        "the chat template 'x.jinja', line 3: no");
  CHECK(without_folders("neither /usr/share/a.gguf nor /opt/b.gguf; name one") == "neither b.gguf; name one");
  CHECK(without_folders("(/var/lib/x/; file:///etc/y)") == "(x/; file:y)");
  CHECK(without_folders("/a") == "a");
}

TEST_CASE("messages to others keep what is no path") {
  for (const char* text :
       {"", "120 tokens/s and 3/4", "a/b: c/d", "session \"talk\" is in use", "10 s / 3", "/: a folder", "/"})
    CHECK(without_folders(text) == text);
}

}  // namespace
}  // namespace troupe
