#include "engine/constraints/expressions/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "config/assert.h"
#include "engine/constraints/expressions/pattern.h"

namespace troupe::engine::constraints {
namespace {

// --- Parts of patterns ---

constexpr std::string_view kHour = "(?:[01]\\d|2[0-3])", kMinute = "[0-5]\\d", kFraction = "(?:\\.\\d+)?";
constexpr std::string_view kOctet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
constexpr std::string_view kPercent = "%[0-9A-Fa-f]{2}";
// Of classes.
constexpr std::string_view kUnreserved = "A-Za-z0-9._~\\-", kSubDelimiters = "!$&'()*+,;=";
constexpr std::string_view kUcs =
    "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}"
    "\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}"
    "\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}"
    "\\u{E1000}-\\u{EFFFD}";
constexpr std::string_view kPrivate = "\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

std::string ipv4() { return fmt::format("{0}(?:\\.{0}){{3}}", kOctet); }

// RFC 4291, 2.2. Beside "::" there are at most `max_groups` groups; an IPv4 address is two.
std::string ipv6(int max_groups) {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  std::string pattern = fmt::format("(?:{0}:){{7}}{0}|(?:{0}:){{6}}{1}", group, ipv4());
  for (int left = 0; left <= max_groups; ++left) {
    std::string before = left == 0 ? "" : group;
    if (left > 1) before += fmt::format("(?::{}){{{}}}", group, left - 1);
    pattern += "|" + before + "::";
    if (left < max_groups) pattern += fmt::format("(?:{0}(?::{0}){{0,{1}}})?", group, max_groups - left - 1);
    if (left + 2 <= max_groups)
      pattern += fmt::format("|{}::(?:{}:){{0,{}}}{}", before, group, max_groups - left - 2, ipv4());
  }
  return "(?:" + pattern + ")";
}

// RFC 3986; RFC 3987 with `ucs` and `in_query` as further members of classes.
struct UriPatterns {
  std::string scheme = "[A-Za-z][A-Za-z0-9+.\\-]*:";
  std::string authority, path_absolute, path_rootless, path_noscheme, path_empty, tail;

  UriPatterns(std::string_view ucs, std::string_view in_query) {
    const auto characters = [&](std::string_view further) {
      return fmt::format("(?:[{}{}{}{}]|{})", kUnreserved, kSubDelimiters, ucs, further, kPercent);
    };
    const std::string pchar = characters(":@"), rest = fmt::format("(?:/{}*)*", pchar);
    const std::string host = fmt::format("(?:\\[(?:{}|[vV][0-9A-Fa-f]+\\.[{}{}:]+)\\]|{}*)", ipv6(7), kUnreserved,
                                         kSubDelimiters, characters(""));
    authority = fmt::format("//(?:{}*@)?{}(?::\\d*)?{}", characters(":"), host, rest);
    path_absolute = fmt::format("/(?:{}+{})?", pchar, rest);
    path_rootless = fmt::format("{}+{}", pchar, rest);
    path_noscheme = fmt::format("{}+{}", characters("@"), rest);
    tail = fmt::format("(?:\\?{}*)?(?:#{}*)?", characters(fmt::format(":@/?{}", in_query)), characters(":@/?"));
  }
  std::string absolute() const {
    return fmt::format("{}(?:{}|{}|{}|){}", scheme, authority, path_absolute, path_rootless, tail);
  }
  std::string reference() const {
    return fmt::format("{}|(?:{}|{}|{}|){}", absolute(), authority, path_absolute, path_noscheme, tail);
  }
};

// --- Formats ---

class FormatTexts {
 public:
  FormatTexts(RegexPool& pool, Writing writing) : pool_(pool), writing_(writing) {}

  RegexId of(std::string_view pattern) {
    const Result<RegexId> texts = parse_pattern(pool_, pattern, writing_, PatternExtent::whole);
    TROUPE_ASSERT(texts);
    return *texts;
  }

  // RFC 3339, full-date: days that are.
  RegexId date() {
    return of(
        "\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
        "02-(?:0[1-9]|1\\d|2[0-8]))|"
        "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29");
  }
  // RFC 3339, full-time. A second 60 is the last one of a day of UTC.
  RegexId time() {
    return of(fmt::format("{0}:{1}:{1}{2}(?:[Zz]|[+\\-]{0}:{1})|{3}", kHour, kMinute, kFraction, leap_seconds()));
  }
  RegexId date_time() { return pool_.concat(std::array{date(), of("[Tt]"), time()}); }

  // RFC 3339, appendix A.
  RegexId duration() {
    const std::string time = "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
    const std::string date = "(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)";
    return of(fmt::format("P(?:{1}(?:{0})?|{0}|\\d+W)", time, date));
  }

  // RFC 1123 and RFC 5890: labels of 63 octets, 253 together. Those with "--" as their third and fourth are left out:
  // they are names only if Punycode and IDNA say so, which no expression does.
  RegexId hostname() {
    const RegexId label = without_marks(of("[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?"));
    const RegexId labels = pool_.concat(label, pool_.repeat(pool_.concat(of("\\."), label), 0, kUnbounded));
    return pool_.both({labels, of("[!-~]{1,253}")});
  }

  // RFC 5321, Mailbox: 64 octets before the @.
  RegexId email() {
    const RegexId domain = pool_.either({hostname(), of(fmt::format("\\[(?:{}|IPv6:{})\\]", ipv4(), ipv6(6)))});
    return pool_.concat(std::array{pool_.both({local_part(""), of("[^]{1,64}")}), of("@"), domain});
  }
  // RFC 6531. With other characters than ASCII's 16 characters before the @, and up to three labels of 11 each, so that
  // octets and Punycode stay within their limits; in labels lower-case letters of scripts without rules of their own.
  RegexId idn_email() {
    constexpr std::string_view kLetters =
        "a-z0-9\\u00E0-\\u00F6\\u00F8-\\u00FF\\u03AC-\\u03AF\\u03B1-\\u03C1\\u03C3-\\u03CE\\u0430-\\u045F"
        "\\u3041-\\u3096\\u30A1-\\u30FA\\u4E00-\\u9FA5\\uAC00-\\uD7A3";
    const RegexId label = without_marks(of(fmt::format("[{0}](?:[{0}\\-]{{0,9}}[{0}])?", kLetters)));
    const RegexId domain = pool_.concat(label, pool_.repeat(pool_.concat(of("\\."), label), 0, 2));
    const RegexId local = pool_.both({local_part("\\u0080-\\u{10FFFF}"), of("[^]{1,16}")});
    return pool_.either({email(), pool_.concat(std::array{local, of("@"), pool_.either({domain, hostname()})})});
  }

  // ECMA-262, a part that other dialects read as well, since no expression tells all of it: groups within groups up to
  // a depth, no names, references, properties, look-behind and flags, ranges of ASCII letters and digits only.
  RegexId regex() {
    constexpr int kDepth = 4;
    const std::string escape =
        "\\\\(?:[dDsSwWfnrtv^$\\\\.*+?()\\[\\]{}|/"
        "]|x[0-9A-Fa-f]{2}|u(?:[0-9A-Ca-cE-Fe-f][0-9A-Fa-f]|[Dd][0-7])[0-9A-Fa-f]{2})";
    std::string range;
    for (const std::string_view ends : {"09", "az", "AZ"})
      for (char first = ends[0]; first <= ends[1]; ++first) range += fmt::format("{0}-[{0}-{1}]|", first, ends[1]);
    const std::string member = fmt::format("(?:{}[^\\\\\\]\\-]|\\\\-|{})", range, escape);
    std::string count;
    for (int min = 0; min < 10; ++min) count += fmt::format("|{0},(?:[{0}-9]|[1-9]\\d)", min);
    const RegexId quantifiers = of(fmt::format("(?:[*+?]|\\{{(?:(?:0|[1-9]\\d?),?{})\\}})\\??", count));
    const RegexId simple = of(fmt::format("[^\\^$\\\\.*+?()\\[\\]{{}}|]|\\.|{}|\\[\\^?-?{}+-?\\]", escape, member));
    const RegexId condition = of("[\\^$]|\\\\[bB]");

    RegexId texts = kNoText;  // of the depth
    for (int depth = 0; depth <= kDepth; ++depth) {
      const auto within = [&](std::string_view begin) { return pool_.concat(std::array{of(begin), texts, of("\\)")}); };
      const RegexId atom = depth == 0 ? simple : pool_.either({simple, within("\\((?:\\?:)?")});
      const RegexId look_ahead = depth == 0 ? kNoText : within("\\(\\?[=!]");
      const RegexId term = pool_.either({condition, look_ahead, pool_.concat(atom, pool_.optional(quantifiers))});
      const RegexId sequence = pool_.repeat(term, 0, kUnbounded);
      texts = pool_.concat(sequence, pool_.repeat(pool_.concat(of("\\|"), sequence), 0, kUnbounded));
    }
    return texts;
  }

 private:
  // Labels without "--" as their third and fourth characters.
  RegexId without_marks(RegexId labels) {
    return pool_.both({labels, pool_.complement(pool_.concat(of("[^]{2}--"), kAnyText))});
  }
  RegexId local_part(std::string_view further) {
    const std::string atom = fmt::format("[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~\\-{}]+", further);
    return of(fmt::format("{0}(?:\\.{0})*|\"(?:[ !#-\\[\\]-~{1}]|\\\\[ -~])*\"", atom, further));
  }
  // The local times and offsets of 23:59:60 UTC. Offsets of whole and half hours: with all there were 1,440 times, each
  // of which has states of its own.
  std::string leap_seconds() {
    std::string pattern = fmt::format("23:59:60{}[Zz]", kFraction);
    for (int hour = 0; hour < 24; ++hour)
      pattern += fmt::format("|{0:02}:(?:59:60{1}(?:\\+{2:02}|-{3:02}):00|29:60{1}(?:\\+{0:02}|-{3:02}):30)", hour,
                             kFraction, (hour + 1) % 24, 23 - hour);
    return pattern;
  }

  RegexPool& pool_;
  const Writing writing_;
};

// RFC 6570, without the operators that it reserves.
std::string uri_template() {
  const std::string name_character = fmt::format("(?:[A-Za-z0-9_]|{})", kPercent);
  const std::string variable = fmt::format("{0}+(?:\\.{0}+)*(?::[1-9]\\d{{0,3}}|\\*)?", name_character);
  return fmt::format("(?:[!#$&-;=?-\\[\\]_a-z~{0}{1}]|{2}|\\{{[+#./;?&]?{3}(?:,{3})*\\}})*", kUcs, kPrivate, kPercent,
                     variable);
}

constexpr std::string_view kJsonPointer = "(?:/(?:[^~/]|~[01])*)*";

struct Format {
  std::string_view name;
  bool is_exact;  // whether no text of the format is left out
  RegexId (*make)(FormatTexts& texts);
};

// Ascending.
constexpr auto kFormats = std::to_array<Format>({
    {"date", true, [](FormatTexts& texts) { return texts.date(); }},
    {"date-time", false, [](FormatTexts& texts) { return texts.date_time(); }},
    {"duration", true, [](FormatTexts& texts) { return texts.duration(); }},
    {"email", false, [](FormatTexts& texts) { return texts.email(); }},
    {"hostname", false, [](FormatTexts& texts) { return texts.hostname(); }},
    {"idn-email", false, [](FormatTexts& texts) { return texts.idn_email(); }},
    {"ipv4", true, [](FormatTexts& texts) { return texts.of(ipv4()); }},
    {"ipv6", true, [](FormatTexts& texts) { return texts.of(ipv6(7)); }},
    {"iri", true, [](FormatTexts& texts) { return texts.of(UriPatterns(kUcs, kPrivate).absolute()); }},
    {"iri-reference", true, [](FormatTexts& texts) { return texts.of(UriPatterns(kUcs, kPrivate).reference()); }},
    {"json-pointer", true, [](FormatTexts& texts) { return texts.of(kJsonPointer); }},
    {"regex", false, [](FormatTexts& texts) { return texts.regex(); }},
    {"relative-json-pointer", true,
     [](FormatTexts& texts) { return texts.of(fmt::format("(?:0|[1-9]\\d*)(?:#|{})", kJsonPointer)); }},
    {"time", false, [](FormatTexts& texts) { return texts.time(); }},
    {"uri", true, [](FormatTexts& texts) { return texts.of(UriPatterns("", "").absolute()); }},
    {"uri-reference", true, [](FormatTexts& texts) { return texts.of(UriPatterns("", "").reference()); }},
    {"uri-template", false, [](FormatTexts& texts) { return texts.of(uri_template()); }},
    {"uuid", true, [](FormatTexts& texts) { return texts.of("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"); }},
});

constexpr auto kFormatNames = [] {
  std::array<std::string_view, kFormats.size()> names;
  std::ranges::transform(kFormats, names.begin(), &Format::name);
  return names;
}();
static_assert(std::ranges::is_sorted(kFormatNames));

}  // namespace

std::span<const std::string_view> known_formats() { return kFormatNames; }

namespace {

const Format* find_format(std::string_view name) {
  const auto found = std::ranges::lower_bound(kFormats, name, {}, &Format::name);
  return found == kFormats.end() || found->name != name ? nullptr : &*found;
}

}  // namespace

bool is_exact_format(std::string_view name) {
  const Format* const format = find_format(name);
  return format != nullptr && format->is_exact;
}

std::optional<RegexId> format_texts(RegexPool& pool, std::string_view name, Writing writing) {
  const Format* const format = find_format(name);
  if (format == nullptr) return std::nullopt;
  FormatTexts texts(pool, writing);
  return format->make(texts);
}

}  // namespace troupe::engine::constraints
