package schema

// appendHstoreJSON renders hstore's output text, `"k"=>"v", "n"=>NULL`, as a
// JSON object. ok is false for any other text: a user-defined type's OID does
// not say whether it is an hstore, only its form does. A domain over jsonb
// thus stays as it is: no JSON document has "=>" after a leading string.
func appendHstoreJSON(dst, text []byte) (out []byte, ok bool) {
	start := len(dst)
	dst = append(dst, '{')
	for i := 0; ; {
		var key bool
		if dst, i, key = appendHstoreString(dst, text, i); !key {
			return dst[:start], false
		}
		if i+2 > len(text) || text[i] != '=' || text[i+1] != '>' {
			return dst[:start], false
		}
		i += 2
		dst = append(dst, ':')
		if i+4 <= len(text) && string(text[i:i+4]) == "NULL" {
			dst = append(dst, "null"...)
			i += 4
		} else {
			var value bool
			if dst, i, value = appendHstoreString(dst, text, i); !value {
				return dst[:start], false
			}
		}
		if i == len(text) {
			return append(dst, '}'), true
		}
		if i+2 > len(text) || text[i] != ',' || text[i+1] != ' ' {
			return dst[:start], false
		}
		i += 2
		dst = append(dst, ',')
	}
}

// appendHstoreString copies the quoted string at text[i:] as a JSON string and
// returns the index after it.
func appendHstoreString(dst, text []byte, i int) ([]byte, int, bool) {
	if i >= len(text) || text[i] != '"' {
		return dst, i, false
	}
	dst = append(dst, '"')
	for i++; i < len(text); i++ {
		c := text[i]
		switch c {
		case '"':
			return append(dst, '"'), i + 1, true
		case '\\':
			if i++; i == len(text) {
				return dst, i, false
			}
			c = text[i]
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20:
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst, i, false
}
