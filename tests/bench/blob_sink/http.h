// Requests of HTTP/1.1 as far as a blob client sends them: a parser and percent-decoding.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

struct Request {
    std::string method;
    std::string path;  // decoded, with its leading slash
    std::map<std::string, std::string> query;
    std::map<std::string, std::string> headers;  // names in lower case
    uint64_t body_bytes = 0;

    std::string header(const char* name) const {
        auto found = headers.find(name);
        return found == headers.end() ? "" : found->second;
    }
    std::string argument(const char* name) const {
        auto found = query.find(name);
        return found == query.end() ? "" : found->second;
    }
};

inline std::string decode(std::string_view text, bool plus_is_space) {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%' && i + 2 < text.size()) {
            char digits[3] = {text[i + 1], text[i + 2], 0};
            out.push_back(static_cast<char>(std::strtol(digits, nullptr, 16)));
            i += 2;
        } else {
            out.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
        }
    }
    return out;
}

inline void parse_target(std::string_view target, Request& request) {
    size_t mark = target.find('?');
    request.path = decode(target.substr(0, mark), false);
    if (mark == std::string_view::npos) return;
    std::string_view rest = target.substr(mark + 1);
    while (!rest.empty()) {
        size_t end = rest.find('&');
        std::string_view pair = rest.substr(0, end);
        size_t equals = pair.find('=');
        std::string value =
            equals == std::string_view::npos ? "" : decode(pair.substr(equals + 1), true);
        request.query[decode(pair.substr(0, equals), true)] = value;
        if (end == std::string_view::npos) break;
        rest.remove_prefix(end + 1);
    }
}

// Parses what lies before the empty line; false for what is no request.
inline bool parse_head(std::string_view head, Request& request) {
    size_t line_end = head.find("\r\n");
    std::string_view line = head.substr(0, line_end);
    size_t first = line.find(' ');
    size_t second = line.rfind(' ');
    if (first == std::string_view::npos || second <= first) return false;
    request = Request{};
    request.method = line.substr(0, first);
    parse_target(line.substr(first + 1, second - first - 1), request);
    while (line_end != std::string_view::npos) {
        head.remove_prefix(line_end + 2);
        line_end = head.find("\r\n");
        line = head.substr(0, line_end);
        size_t colon = line.find(':');
        if (colon == std::string_view::npos) continue;
        std::string name(line.substr(0, colon));
        for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
        size_t start = line.find_first_not_of(' ', colon + 1);
        std::string value(start == std::string_view::npos ? "" : line.substr(start));
        request.headers[std::move(name)] = std::move(value);
    }
    request.body_bytes = std::strtoull(request.header("content-length").c_str(), nullptr, 10);
    return true;
}
