// The plain logic of models that are fetched: addresses, names, ranges, records, answers of servers, the choice of a
// file.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "cli/pull/http_fields.h"
#include "cli/pull/listing.h"
#include "cli/pull/quant.h"
#include "cli/store/byte_ranges.h"
#include "cli/store/limited_json.h"
#include "cli/store/model_source.h"
#include "cli/store/record.h"
#include "cli/store/transfer_state.h"
#include "cli/store/url.h"

using namespace troupe;
using namespace troupe::cli;
using Catch::Contains;

namespace {

ModelHosts store_test_hosts() {
  return {*parse_url("https://huggingface.co/"), *parse_url("https://registry.ollama.ai/")};
}

std::string name_of(const std::string& text, const std::string& quant = "Q8_0") {
  const auto source = parse_source(text, store_test_hosts());
  return source ? store_name(*source, store_test_hosts(), quant) : source.error().message;
}

RemoteModel remote(const std::string& quant, std::uint64_t bytes) {
  return {quant, {{"tiny-" + quant + ".gguf", bytes, ""}}};
}

}  // namespace

TEST_CASE("an address is read as it will be asked for") {
  const auto url = parse_url("HTTPS://Example.ORG:8443/a b/\xc3\xa4.gguf?x=1#part");
  REQUIRE(url);
  CHECK(url->text() == "https://example.org:8443/a%20b/%C3%A4.gguf?x=1");
  CHECK(url->path() == "/a%20b/%C3%A4.gguf");
  CHECK(parse_url("https://h")->text() == "https://h/");
  CHECK(parse_url("http://h:80/x")->origin() == "http://h");
  CHECK(parse_url("https://[::1]:5/x")->origin() == "https://[::1]:5");
  for (const char* bad : {"", "h/x", "ftp://h/x", "file:///x", "https:///x", "https://u@h/x", "https://u:p@h/x",
                          "https://h:0/", "https://h:65536/", "https://h:x/", "https://h\\@evil/x", "https://h/\x01",
                          "https://-h/", "https://a_b/", "https://[g]/", "https://[]/", "https://h\n/"})
    CHECK_FALSE(parse_url(bad));
  CHECK_FALSE(parse_url("https://h/" + std::string(kMaxUrlBytes, 'x')));
}

TEST_CASE("only this machine is this machine") {
  for (const char* yes : {"http://localhost/", "http://127.0.0.1/", "http://127.255.0.9:80/", "http://[::1]/"})
    CHECK(parse_url(yes)->is_loopback());
  for (const char* no :
       {"http://127.0.0.1.example.org/", "http://127.1/", "http://0127.0.0.1/", "http://127.0.0.256/",
        "http://128.0.0.1/", "http://localhost.example.org/", "http://[::2]/", "http://127.0.0.1./", "http://0.0.0.0/"})
    CHECK_FALSE(parse_url(no)->is_loopback());
}

TEST_CASE("a redirect leads where a browser would go") {
  const Url base = *parse_url("https://h/a/b?q=1");
  const std::pair<const char*, const char*> cases[] = {{"https://g/x", "https://g/x"},
                                                       {"//g/x", "https://g/x"},
                                                       {"/x", "https://h/x"},
                                                       {"x", "https://h/a/x"},
                                                       {"?y=2", "https://h/a/b?y=2"},
                                                       {"", "https://h/a/b"},
                                                       {"x?u=https://g/", "https://h/a/x?u=https://g/"}};
  for (const auto& [location, expected] : cases) CHECK(resolve_url(base, location)->text() == expected);
  for (const char* bad : {"ftp://g/x", "javascript:x", "https://u@g/"}) CHECK_FALSE(resolve_url(base, bad));
}

TEST_CASE("names of models are one name each in the store") {
  CHECK(name_of("org/name") == "org/name:Q8_0");
  CHECK(name_of("org/name:q8_0") == "org/name:Q8_0");
  CHECK(name_of("hf.co/org/name:q8_0") == "org/name:Q8_0");
  CHECK(name_of("https://huggingface.co/org/name") == "org/name:Q8_0");
  CHECK(name_of("https://hf.co/org/name") == "org/name:Q8_0");
  CHECK(name_of("org/name@v1:q8_0") == "org/name:Q8_0@v1");
  CHECK(name_of("org/name:q8_0@v1") == "org/name:Q8_0@v1");
  CHECK(name_of("https://huggingface.co/org/name/tree/v1") == "org/name:Q8_0@v1");
  CHECK(name_of("https://example.org/a/tiny%20one.gguf") == "tiny one");
  CHECK(name_of("https://example.org/tiny-00002-of-00003.gguf?x") == "tiny");
  CHECK(name_of("ollama://llama3.2") == "llama3.2:latest");
  CHECK(name_of("ollama://llama3.2:1b") == "llama3.2:1b");
  CHECK(name_of("ollama://me/mine:1b") == "ollama://me/mine:1b");
  CHECK(name_of("ollama://example.org/me/mine") == "ollama://example.org/me/mine:latest");
  const auto page = parse_source("https://huggingface.co/org/name/blob/main/Q8/x-Q8_0.gguf", store_test_hosts());
  CHECK((page->repo == "org/name" && page->quant == "Q8/x-Q8_0.gguf" && page->revision == "main"));
}

TEST_CASE("what leads elsewhere is no name") {
  for (const char* bad : {"",
                          "x",
                          "a/b/c",
                          "/a/b",
                          "../b",
                          "a/..",
                          "a/b:",
                          "a/b@",
                          "a/b:../c",
                          "a/b@x/../y",
                          "-a/b",
                          ".a/b",
                          "a/b c",
                          "ollama://",
                          "ollama://../b",
                          "ollama://a:..",
                          "ollama://a/b/c/d",
                          "https://h/",
                          "https://h/x.bin",
                          "https://h/%2e%2e%2fx.gguf",
                          "https://h/.gguf",
                          "https://h/a%00.gguf",
                          "a/b\x1b"})
    CHECK_FALSE(parse_source(bad, store_test_hosts()));
  CHECK_FALSE(parse_source("a/" + std::string(97, 'b'), store_test_hosts()));
  for (const char* bad : {"",      "../x",  "/x",  ".x",  "-x",  "a b", "a=b", "a,b", "a\\b", "a/../b",
                          "a\x1b", "a\xff", "a;b", "a$b", "a`b", "a|b", "a'b", "a&b", "a(b",  "\xc3\xa4"})
    CHECK_FALSE(problem_of_store_name(bad).empty());
  CHECK_FALSE(problem_of_store_name(std::string(kMaxStoreNameBytes + 1, 'x')).empty());
  CHECK(problem_of_store_name("org/name:Q4_K_M@main").empty());
}

TEST_CASE("a part of a name means it where a quantization begins") {
  CHECK(match_name("org/name:Q8_0", "org/name:Q8_0") == NameMatch::same);
  CHECK(match_name("ORG/NAME:q8_0", "org/name:Q8_0") == NameMatch::in_other_case);
  CHECK(match_name("hf.co/org/name:q8_0", "org/name:Q8_0") == NameMatch::in_other_words);
  CHECK(match_name("org/name", "org/name:Q8_0") == NameMatch::partly);
  CHECK(match_name("org/nam", "org/name:Q8_0") == NameMatch::none);
  CHECK(match_name("org/name:Q8", "org/name:Q8_0") == NameMatch::none);
  CHECK(match_name("ollama://tiny", "tiny:latest") == NameMatch::in_other_words);
  // A hub's model and a registry's are two, and so are two revisions.
  CHECK(match_name("ollama://org/name:Q8_0", "org/name:Q8_0") == NameMatch::none);
  CHECK(match_name("org/name:Q8_0", "ollama://org/name:Q8_0") == NameMatch::none);
  CHECK(match_name("org/name:Q8_0", "org/name:Q8_0@dev") == NameMatch::none);
  CHECK(match_name("org/name", "org/name:Q8_0@dev") == NameMatch::none);
  CHECK(match_name("ollama://org/name", "ollama://org/name:latest") == NameMatch::in_other_words);
  CHECK(match_name("tiny", "tiny:1b") == NameMatch::partly);
}

TEST_CASE("ranges are those of a plain list of bytes, whatever is added") {
  std::mt19937 random(55);
  for (int round = 0; round < 200; ++round) {
    ByteRanges ranges;
    std::vector<bool> plain(64);
    for (int step = 0; step < 24; ++step) {
      const std::uint64_t begin = random() % 64, end = std::min<std::uint64_t>(64, begin + random() % 12);
      ranges.add({begin, end});
      for (std::uint64_t i = begin; i < end; ++i) plain[i] = true;
      const auto first_absent =
          static_cast<std::uint64_t>(std::find(plain.begin(), plain.end(), false) - plain.begin());
      REQUIRE(ranges.front() == first_absent);
      REQUIRE(ranges.total() == static_cast<std::uint64_t>(std::count(plain.begin(), plain.end(), true)));
      std::uint64_t before = 0;
      for (const ByteRange& range : ranges.ranges()) {
        REQUIRE((range.begin < range.end && (range.begin > before || before == 0)));
        before = range.end;
      }
      const auto gap = ranges.first_gap(64, 5);
      REQUIRE(gap.has_value() == (first_absent < 64));
      if (!gap) continue;
      REQUIRE((gap->begin == first_absent && gap->size() >= 1 && gap->size() <= 5));
      for (std::uint64_t i = gap->begin; i < gap->end; ++i) REQUIRE_FALSE(plain[i]);
    }
  }
}

TEST_CASE("fields of answers say what they say and nothing else") {
  const auto range = parse_content_range("bytes 5-9/10");
  CHECK((range && range->begin == 5 && range->end == 10 && range->size == 10));
  for (const char* bad : {"", "bytes", "bytes */10", "bytes 5-9/*", "bytes 9-5/10", "bytes 5-10/10", "bytes -1-5/10",
                          "5-9/10", "bytes 5-9/10x", "bytes 5-99999999999999999999/100"})
    CHECK_FALSE(parse_content_range(bad));
  using namespace std::chrono_literals;
  constexpr std::int64_t kNow = 1'795'953'600;  // Sun, 29 Nov 2026 12:00:00 GMT
  CHECK(parse_retry_after("120", kNow) == 120s);
  CHECK(parse_retry_after("Sun, 29 Nov 2026 12:01:30 GMT", kNow) == 90s);
  CHECK(parse_retry_after("Sun, 29 Nov 2026 11:00:00 GMT", kNow) == 0s);
  for (const char* bad : {"", "soon", "-5", "1.5", "Sun, 29 Nov 2026 12:01:30 CET"})
    CHECK_FALSE(parse_retry_after(bad, kNow));
  CHECK(next_link("<https://h/a>; rel=\"prev\", <https://h/b>; rel=\"next\"") == "https://h/b");
  CHECK(next_link("<https://h/a>; rel=\"prev\"").empty());
  CHECK(next_link("https://h/a; rel=\"next\"").empty());
  CHECK((backoff(1) == 500ms && backoff(2) == 1s && backoff(7) == 30s && backoff(1000) == 30s));
  HttpFields fields;
  add_field("ETag:  \"x\" \r\n", fields);
  add_field("no field", fields);
  CHECK((field_of(fields, "etag") == "\"x\"" && fields.size() == 1));
}

TEST_CASE("the quantization is what the end of a file's name says") {
  const std::pair<const char*, const char*> cases[] = {{"tiny-Q4_K_M.gguf", "Q4_K_M"},
                                                       {"tiny.q8_0.gguf", "Q8_0"},
                                                       {"Q8_0/tiny-Q8_0-00001-of-00002.gguf", "Q8_0"},
                                                       {"tiny-UD-Q2_K_XL.gguf", "UD-Q2_K_XL"},
                                                       {"tiny-BF16.gguf", "BF16"},
                                                       {"tiny-iq2_xxs.gguf", "IQ2_XXS"},
                                                       {"tiny_q8_0.gguf", "Q8_0"},
                                                       {"tales-5m-tq2_0.gguf", "TQ2_0"},
                                                       {"tiny.gguf", ""},
                                                       {"Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"},
                                                       {"Qwen3-8B.gguf", ""},
                                                       {"gpt-oss-20b-mxfp4.gguf", "MXFP4"}};
  for (const auto& [name, quant] : cases) CHECK(quant_of(name) == quant);
}

TEST_CASE("models of a repository are its files and its whole split models") {
  const auto models = models_of({{"b-Q8_0-00002-of-00002.gguf", 5, ""},
                                 {"b-Q8_0-00001-of-00002.gguf", 5, ""},
                                 {"b-Q4_0.gguf", 4, ""},
                                 {"mmproj-F16.gguf", 9, ""},
                                 {"c-Q8_0-00001-of-00003.gguf", 99, ""},
                                 {"x.imatrix.gguf", 7, ""},
                                 {"README.md", 1, ""},
                                 {"d-Q8_0-00001-of-00002.gguf", 50, ""},
                                 {"d-Q8_0-00001-of-00002.gguf", 50, ""}});
  REQUIRE(models.size() == 2);
  CHECK((models[0].quant == "Q8_0" && models[0].bytes() == 10 &&
         models[0].files[0].path == "b-Q8_0-00001-of-00002.gguf"));
  CHECK(models[1].quant == "Q4_0");
}

TEST_CASE("the largest file that fits is chosen, with the reason") {
  const std::vector<RemoteModel> models{remote("BF16", 16'000'000'000), remote("Q8_0", 8'500'000'000),
                                        remote("Q4_K_M", 4'900'000'000)};
  const auto middle = choose_fitting(models, {.budget = 6'200'000'000, .beside = 1'000'000'000, .context = 8192});
  REQUIRE(middle);
  CHECK(middle->model.quant == "Q4_K_M");
  CHECK_THAT(middle->why, Contains("Q4_K_M, 4.9 GB: Q8_0's 8.5 GB does not fit the 6.2 GB") &&
                              Contains("1.0 GB for K and V of 8192"));
  CHECK(choose_fitting(models, {.budget = 17'000'000'000, .beside = 1'000'000'000, .context = 1})->model.quant ==
        "BF16");
  CHECK(choose_fitting(models, {.budget = 16'999'999'999, .beside = 1'000'000'000, .context = 1})->model.quant ==
        "Q8_0");
  const auto none = choose_fitting(models, {.budget = 5'000'000'000, .beside = 1'000'000'000, .context = 8192});
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::out_of_memory);
  CHECK_THAT(none.error().message, Contains("5.0 GB") && Contains("the smallest is Q4_K_M, 4.9 GB"));
  CHECK_THAT(choose_named(models, "Q5_K").error().message, Contains("Q4_K_M (4.9 GB), Q8_0 (8.5 GB), BF16 (16.0 GB)"));
  CHECK(choose_named(models, "q8_0")->model.quant == "Q8_0");
  CHECK(size_text(999) == "999 B");
  CHECK(size_text(999'960) == "1.0 MB");
}

TEST_CASE("records read back as they were written, and others are refused") {
  const std::string sha(64, 'a');
  StoredModel model{
      .name = "org/name:Q8_0",
      .source = "org/name",
      .quant = "Q8_0",
      .family = "llama",
      .files = {{"x-00001-of-00002.gguf", sha, 5, "https://h/1", "\"e\""}, {"x-00002-of-00002.gguf", sha, 6}},
      .pulled = 1'795'953'600};
  CHECK(*parse_record(record_text(model)) == model);
  CHECK(model.bytes() == 11);
  const std::string folder = model.folder();
  const auto refused = [](StoredModel changed) { return !parse_record(record_text(changed)); };
  const auto with = [&](auto change) {
    StoredModel changed = model;
    change(changed);
    return refused(changed);
  };
  CHECK(with([](StoredModel& m) { m.name = "../x"; }));
  CHECK(with([](StoredModel& m) { m.files.clear(); }));
  CHECK(with([](StoredModel& m) {
    m.files.pop_back();
    m.files.push_back({"y.gguf", std::string(64, 'b'), 1});
  }));
  CHECK(with([](StoredModel& m) { std::swap(m.files[0], m.files[1]); }));
  CHECK(with([](StoredModel& m) { m.files[0].name = "../x.gguf"; }));
  CHECK(with([](StoredModel& m) { m.files[0].sha256.back() = 'g'; }));
  CHECK(with([](StoredModel& m) { m.files[0].bytes = 0; }));
  CHECK(with([](StoredModel& m) { m.files[0].bytes = kMaxModelFileBytes + 1; }));
  for (const char* bad : {"", "[]", "{}", "{\"version\": 1}", "{\"version\": 2}", "null"})
    CHECK_FALSE(parse_record(bad));
  model.files[0].sha256.back() = 'b';
  CHECK(model.folder() != folder);
}

TEST_CASE("a state of a transfer promises no byte beyond the file") {
  TransferState state{.url = "https://h/x", .sha256 = std::string(64, 'a'), .etag = "e", .size = 100, .done = {}};
  state.done.add({0, 10});
  state.done.add({50, 100});
  const auto again = parse_state(state_text(state));
  REQUIRE(again);
  CHECK((again->done.ranges() == state.done.ranges() && again->etag == "e" && again->size == 100));
  for (const char* done : {"[[0,101]]", "[[5,5]]", "[[6,5]]", "[[-1,5]]", "[[0]]", "[5]", "{}", "[[0,1.5]]"})
    CHECK_FALSE(parse_state("{\"version\":1,\"size\":100,\"done\":" + std::string(done) + "}"));
  CHECK_FALSE(parse_state("{\"version\":1,\"size\":0,\"done\":[]}"));
  CHECK(parse_state("{\"version\":1,\"size\":100,\"done\":[]}"));
}

TEST_CASE("what is nested deeper than any answer is not read") {
  CHECK(is_nested_deeper("[[[]]]", 2));
  CHECK_FALSE(is_nested_deeper("[[[]]]", 3));
  CHECK_FALSE(is_nested_deeper(R"(["[[[[[[", "\\\"[[[", [], [], []])", 2));
  const std::string deep(4'000'000, '[');
  std::vector<RemoteFile> files;
  CHECK_FALSE(add_listing(deep, files));
  CHECK_FALSE(parse_image_manifest(deep));
  CHECK_FALSE(parse_record(deep.substr(0, 1'000'000)));
  CHECK_FALSE(parse_state(deep.substr(0, 1'000'000)));
}

TEST_CASE("a word that a shell would read otherwise is quoted") {
  CHECK(shell_word("org/name:Q8_0") == "org/name:Q8_0");
  CHECK(shell_word("https://h/x?a=1&b") == "'https://h/x?a=1&b'");
  CHECK(shell_word("a'b") == "'a'\\''b'");
  CHECK(shell_word("") == "''");
}
