#include "cli/client/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace troupe::cli {

namespace {

// Has the terminal put marks around what is pasted (xterm's bracketed paste): then its lines are one text, and do not
// each end what is said.
constexpr std::string_view kMarkPastes = "\x1b[?2004h", kLeavePastes = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

}  // namespace

struct LineEditor::Terminal {
  Terminal() {
    // libedit reads characters as the locale has them. Messages are UTF-8, also where the user's locale says nothing.
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
    editor = ::el_init("troupe", stdin, stderr, stderr);
    lines = ::history_init();
    HistEvent event;
    ::history(lines, &event, H_SETSIZE, 1000);
    ::history(lines, &event, H_SETUNIQUE, 1);
    ::el_set(editor, EL_CLIENTDATA, this);
    ::el_set(editor, EL_PROMPT_ESC, prompt_of, kTakesNoRoom);
    ::el_set(editor, EL_EDITOR, "emacs");
    ::el_set(editor, EL_HIST, ::history, lines);
    ::el_set(editor, EL_SIGNAL, 0);
    // Ctrl-C is a key while a line is edited, and a signal while an answer comes.
    // In wide characters: libedit never frees the copies that it makes of others.
    ::el_wset(editor, EL_ADDFN, L"troupe-interrupt", L"drops the line", interrupt);
    ::el_set(editor, EL_BIND, "^C", "troupe-interrupt", nullptr);
    ::el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    ::el_wset(editor, EL_ADDFN, L"troupe-paste", L"inserts what is pasted", paste);
    ::el_set(editor, EL_BIND, "\\e[200~", "troupe-paste", nullptr);
    const char* const name = std::getenv("TERM");
    marks_pastes = name != nullptr && std::string_view(name) != "dumb";
  }
  ~Terminal() {
    ::el_end(editor);
    ::history_end(lines);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static char* prompt_of(EditLine* editor) { return self(editor)->prompt.data(); }
  static unsigned char interrupt(EditLine* editor, int) {
    self(editor)->was_interrupted = true;
    return CC_NEWLINE;
  }
  // Ends of lines become "\n"; other control characters are left out, as they would be keys.
  static unsigned char paste(EditLine* editor, int) {
    std::wstring text;
    wchar_t c = 0;
    while (text.size() < kMaxLineBytes && ::el_wgetc(editor, &c) == 1) {
      text += c;
      if (text.ends_with(kPasteEnd)) break;
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    std::wstring kept;
    for (const wchar_t each : text) {
      const bool ends_line = each == L'\r' || (each == L'\n' && c != L'\r');
      if (ends_line) kept += L'\n';
      if (each == L'\t' || (each >= L' ' && each != L'\x7f')) kept += each;
      c = each;
    }
    return !kept.empty() && ::el_winsertstr(editor, kept.c_str()) != 0 ? CC_ERROR : CC_REFRESH;
  }
  void mark_pastes(bool on) const {
    if (marks_pastes) std::cerr << (on ? kMarkPastes : kLeavePastes) << std::flush;
  }
  static Terminal* self(EditLine* editor) {
    void* data = nullptr;
    ::el_get(editor, EL_CLIENTDATA, &data);
    return static_cast<Terminal*>(data);
  }

  EditLine* editor;
  History* lines;
  std::string prompt;
  bool was_interrupted = false;
  bool marks_pastes = false;
};

LineEditor::LineEditor() {
  if (::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0) terminal_ = std::make_unique<Terminal>();
}
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  was_interrupted_ = false;
  if (!terminal_) return read_plain();
  terminal_->prompt = prompt;
  terminal_->was_interrupted = false;
  // Before the prompt is shown: from then on Ctrl-C is a key.
  ::el_set(terminal_->editor, EL_PREP_TERM, 1);
  int count = 0;
  terminal_->mark_pastes(true);
  const char* const text = ::el_gets(terminal_->editor, &count);
  terminal_->mark_pastes(false);
  was_interrupted_ = terminal_->was_interrupted;
  if (was_interrupted_) {
    std::cerr << "^C\n";
    return "";
  }
  if (text == nullptr || count <= 0) return std::nullopt;
  std::string line(text, static_cast<std::size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (!line.empty()) ::history(terminal_->lines, &event, H_ENTER, line.c_str());
  return line;
}

std::optional<std::string> LineEditor::read_plain() {
  std::string line;
  int c = std::getc(stdin);
  if (c == EOF) return std::nullopt;
  for (; c != EOF && c != '\n'; c = std::getc(stdin)) {
    line += static_cast<char>(c);
    if (line.size() == kMaxLineBytes) break;
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace troupe::cli
