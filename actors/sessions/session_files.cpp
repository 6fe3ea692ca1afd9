#include "actors/sessions/session_files.h"

namespace troupe::actors {

bool SessionFiles::is_newer(const File& file, std::uint64_t number) const {
  const auto found = numbers_.find(file);
  return found != numbers_.end() && found->second > number;
}

SessionFiles::Written SessionFiles::write_tokens(const SessionKey& key, std::uint64_t number,
                                                 const engine::SequenceRecord& record) {
  Written written{.is_there = false};
  written.status = store_.write_tokens(key, record, [&](const std::function<bool()>& rename) {
    const std::lock_guard lock(names_);
    if (!rename()) return false;
    numbers_[{key, SessionPart::tokens}] = number;
    return written.is_there = true;
  });
  return written;
}

SessionFiles::Written SessionFiles::write_contents(const SessionKey& key, std::uint64_t number,
                                                   const engine::SequenceRecord& record,
                                                   const engine::SequenceImage& image,
                                                   const std::function<bool()>& is_wanted) {
  Written written{.is_there = false};
  written.status = store_.write_contents(key, record, image, [&](const std::function<bool()>& rename) {
    const std::lock_guard lock(names_);
    if (!is_wanted() || !rename()) return false;
    numbers_[{key, SessionPart::contents}] = number;
    return written.is_there = true;
  });
  return written;
}

Status SessionFiles::link_contents(const SessionKey& from, const SessionKey& to, std::uint64_t number) {
  const std::lock_guard lock(names_);
  Status linked = store_.link_contents(from, to);
  if (linked) numbers_[{to, SessionPart::contents}] = number;
  return linked;
}

Status SessionFiles::remove(const Evicted& gone) {
  std::vector<FileDescriptor> freed;  // closed after the lock is given back
  const std::lock_guard lock(names_);
  for (const SessionPart part : {SessionPart::contents, SessionPart::tokens}) {
    const File file{gone.key, part};
    if ((part == SessionPart::tokens && !gone.whole) || is_newer(file, gone.number)) continue;
    auto unlinked = store_.unlink(gone.key, part);
    if (!unlinked) return unlinked.error();
    freed.push_back(std::move(*unlinked));
    numbers_.erase(file);
  }
  return Ok{};
}

}  // namespace troupe::actors
