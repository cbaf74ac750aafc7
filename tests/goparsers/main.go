// Command goparsers reads one case a line, and answers with what Go's parsers read, null for what they refuse.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

type schedule struct {
	Schedule string    `json:"schedule"`
	Until    time.Time `json:"until"`
}

type selector struct {
	Selector *metav1.LabelSelector `json:"selector"`
	Labels   map[string]string     `json:"labels"`
}

// newest returns the newest moment of a schedule, parsed as by Karpenter's Budget.IsActive. cron only searches forward.
func newest(given schedule) any {
	parsed, err := cron.ParseStandard("TZ=UTC " + given.Schedule)
	if err != nil {
		return nil
	}
	for _, days := range []int{1, 8, 40, 400, 8 * 366} {
		var found time.Time
		at := parsed.Next(given.Until.AddDate(0, 0, -days))
		for !at.IsZero() && !at.After(given.Until) {
			found, at = at, parsed.Next(at)
		}
		if !found.IsZero() {
			return found.Unix()
		}
	}
	return 0
}

func read[T any](raw json.RawMessage, answer func(T) any) any {
	var given T
	if err := json.Unmarshal(raw, &given); err != nil {
		panic(err)
	}
	return answer(given)
}

func answer(kind string, raw json.RawMessage) any {
	switch kind {
	case "schedule":
		return read(raw, newest)
	case "duration":
		return read(raw, func(text string) any {
			if parsed, err := time.ParseDuration(text); err == nil {
				return int64(parsed)
			}
			return nil
		})
	case "quantity":
		return read(raw, func(text string) any {
			if parsed, err := resource.ParseQuantity(text); err == nil {
				return []int64{parsed.Value(), parsed.MilliValue()}
			}
			return nil
		})
	case "selector":
		return read(raw, func(given selector) any {
			parsed, err := metav1.LabelSelectorAsSelector(given.Selector)
			if err != nil {
				return nil
			}
			return parsed.Matches(labels.Set(given.Labels))
		})
	case "yaml":
		return read(raw, func(text string) any {
			if !strings.ContainsAny(text, ".eE") && len(text) < 10 {
				text += "\n- {" + text + ": 1}"
			}
			if found, err := yaml.YAMLToJSON([]byte("- " + text)); err == nil {
				return json.RawMessage(found)
			}
			return nil
		})
	}
	panic(kind)
}

func main() {
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var given []json.RawMessage
		var kind string
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		if err := json.Unmarshal(given[0], &kind); err != nil {
			panic(err)
		}
		if err := answers.Encode(answer(kind, given[1])); err != nil {
			panic(err)
		}
	}
}
