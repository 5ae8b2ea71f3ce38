package main

import "strings"

// keyAt returns the key of the file at a path, nil when there is none. Secrets
// are not keys of the file.
func keyAt(path string) *key {
	for i := range configKeys {
		if configKeys[i].path == path && !configKeys[i].secret {
			return &configKeys[i]
		}
	}
	return nil
}

func hasSection(path string) bool {
	for i := range configKeys {
		if strings.HasPrefix(configKeys[i].path, path+".") {
			return true
		}
	}
	return false
}

// nearestKey is what was probably meant: a neighbour that differs by a slip,
// else the same name in another section, else the whole path that is nearest.
func nearestKey(path string) string {
	i := strings.LastIndexByte(path, '.')
	prefix, name := path[:i+1], path[i+1:]
	var siblings, homes, all []string
	for k := range configKeys {
		key := &configKeys[k]
		if key.secret {
			continue
		}
		all = append(all, key.path)
		if key.name() == name {
			homes = append(homes, key.path)
		}
		if rest, ok := strings.CutPrefix(key.path, prefix); ok {
			first, _, _ := strings.Cut(rest, ".")
			siblings = append(siblings, first)
		}
	}
	if len(siblings) > 0 {
		if s := nearest(name, siblings); distance(name, s) <= max(1, len(name)/3) {
			return prefix + s
		}
	}
	if len(homes) > 0 {
		return nearest(path, homes)
	}
	return nearest(path, all)
}

// nearest returns the first of the names with the least distance.
func nearest(name string, names []string) string {
	best, at := names[0], -1
	for _, n := range names {
		if d := distance(name, n); at < 0 || d < at {
			best, at = n, d
		}
	}
	return best
}

// distance counts single-letter edits and swaps of neighbours between two
// names; case, dots, dashes and underscores do not count.
func distance(a, b string) int {
	fold := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "").Replace(s))
	}
	a, b = fold(a), fold(b)
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
