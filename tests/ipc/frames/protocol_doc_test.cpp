// Clients in other languages are written from docs/protocol.md: its bytes and its tables must match the code.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <google/protobuf/text_format.h>
#include <catch2/catch.hpp>

#include "ipc/frames/framing.h"
#include "ipc/troupe.pb.h"
#include "scheduler/outcome.h"

namespace troupe::ipc {
namespace {

using google::protobuf::TextFormat;

std::vector<std::string> lines_of_doc() {
  std::ifstream file(TROUPE_MODELS "/../docs/protocol.md");
  REQUIRE(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The contents of all fenced blocks, with the text after their opening fence.
std::vector<std::pair<std::string, std::string>> fenced_blocks() {
  std::vector<std::pair<std::string, std::string>> blocks;
  bool inside = false;
  for (const std::string& line : lines_of_doc()) {
    if (line.starts_with("```")) {
      inside = !inside;
      if (inside) blocks.emplace_back(line.substr(3), "");
    } else if (inside) {
      blocks.back().second += line + "\n";
    }
  }
  return blocks;
}

std::string bytes_of_hex(const std::string& block) {
  std::string bytes;
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) bytes.push_back(static_cast<char>(std::stoi(word, nullptr, 16)));
  }
  return bytes;
}

template <class Frame>
void require_same(const std::string& hex, const std::string& text) {
  INFO(text);
  const std::string bytes = bytes_of_hex(hex);
  FrameDecoder decoder(4096);
  decoder.append(bytes);
  const auto body = decoder.next();
  REQUIRE(body);
  REQUIRE(body->has_value());
  REQUIRE_FALSE(decoder.mid_frame());
  Frame decoded, expected;
  REQUIRE(decoded.ParseFromArray((*body)->data(), static_cast<int>((*body)->size())));
  REQUIRE(TextFormat::ParseFromString(text, &expected));
  REQUIRE(decoded.DebugString() == expected.DebugString());
  REQUIRE(expected.SerializeAsString() == **body);
}

TEST_CASE("docs/protocol.md: the bytes of every example encode and decode to its text") {
  const auto blocks = fenced_blocks();
  int client = 0, server = 0;
  for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
    const auto& [kind, hex] = blocks[i];
    if (kind != "client-frame" && kind != "server-frame") continue;
    REQUIRE(blocks[i + 1].first == "textproto");
    if (kind == "client-frame") {
      require_same<v1::ClientFrame>(hex, blocks[i + 1].second);
      ++client;
    } else {
      require_same<v1::ServerFrame>(hex, blocks[i + 1].second);
      ++server;
    }
  }
  REQUIRE(client == 3);
  REQUIRE(server == 4);
}

TEST_CASE("docs/protocol.md: its table of outcomes and the schema's equal the code's") {
  std::vector<std::string> rows;
  for (const std::string& line : lines_of_doc())
    if (line.starts_with("| ") && line.size() > 2 && line[2] >= '1' && line[2] <= '9') rows.push_back(line);
  std::size_t row = 0;
  for (const scheduler::OutcomeInfo& info : scheduler::outcomes()) {
    const char* in = info.kind == scheduler::OutcomeKind::done      ? "Done"
                     : info.kind == scheduler::OutcomeKind::refused ? "Refused"
                                                                    : "Failed";
    const auto number = static_cast<int>(info.outcome);
    const std::string name(info.name);
    const std::string expected = "| " + std::to_string(number) + " | " + name + " | " + in + " | " +
                                 (info.retryable ? "yes" : "no") + " | " + std::to_string(info.exit_code) + " | " +
                                 std::to_string(info.http_status) + " | ";
    // Rows that begin with a number and a bar are outcomes'; the frame table's "4 | length" comes before.
    while (row < rows.size() && !rows[row].starts_with(expected)) ++row;
    INFO(expected);
    REQUIRE(row < rows.size());
    std::string upper = "OUTCOME_";
    for (const char c : name) upper.push_back(static_cast<char>(std::toupper(c)));
    v1::Outcome on_wire = v1::OUTCOME_UNSPECIFIED;
    REQUIRE(v1::Outcome_Parse(upper, &on_wire));
    REQUIRE(static_cast<int>(on_wire) == number);
  }
  REQUIRE(v1::Outcome_descriptor()->value_count() == static_cast<int>(scheduler::outcomes().size()) + 1);
}

TEST_CASE("docs/protocol.md names every message and every field of a request") {
  std::string doc;
  for (const std::string& line : lines_of_doc()) doc += line + "\n";
  for (const auto* frame : {v1::ClientFrame::descriptor(), v1::ServerFrame::descriptor()})
    for (int i = 0; i < frame->field_count(); ++i) {
      INFO(frame->field(i)->message_type()->name());
      REQUIRE(doc.find(frame->field(i)->message_type()->name()) != std::string::npos);
    }
  for (const auto* message :
       {v1::Generate::descriptor(), v1::Sampling::descriptor(), v1::Embed::descriptor(), v1::Refused::descriptor()})
    for (int i = 0; i < message->field_count(); ++i) {
      const std::string name = message->field(i)->name();
      INFO(name);
      const bool named = doc.find(name) != std::string::npos;
      REQUIRE((named || name.starts_with("xtc_")));
    }
}

}  // namespace
}  // namespace troupe::ipc
