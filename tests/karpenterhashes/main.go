// Hashes NodePools and EC2NodeClasses with Karpenter's own code. Reads one JSON object a line, {"manifest": …,
// "caBundle": …}, and writes one a line, {"hash": …, "version": …}. Defaults and unknown fields are handled as an API
// server handles them that serves Karpenter's CRDs.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	aws "github.com/aws/karpenter-provider-aws/pkg/apis"
	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	karpenter "sigs.k8s.io/karpenter/pkg/apis"
	karpenterv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

type line struct {
	Manifest map[string]any `json:"manifest"`
	CABundle *string        `json:"caBundle"`
}

type answer struct {
	Hash    string `json:"hash"`
	Version string `json:"version"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var read line
		must(json.Unmarshal(lines.Bytes(), &read))
		must(out.Encode(hash(read)))
	}
	must(lines.Err())
}

func hash(read line) answer {
	switch kind := read.Manifest["kind"]; kind {
	case "NodePool":
		var pool karpenterv1.NodePool
		decode(read.Manifest, specOf(karpenter.CRDs, "NodePool"), &pool)
		return answer{pool.Hash(), karpenterv1.NodePoolHashVersion}
	case "EC2NodeClass":
		var nodeClass awsv1.EC2NodeClass
		decode(read.Manifest, specOf(aws.CRDs, "EC2NodeClass"), &nodeClass)
		return answer{nodeClass.Hash(read.CABundle), awsv1.EC2NodeClassHashVersion}
	default:
		log.Fatalf("%v is hashed by nobody", kind)
		return answer{}
	}
}

func specOf(crds []*apiextensionsv1.CustomResourceDefinition, kind string) schema {
	for _, crd := range crds {
		if crd.Spec.Names.Kind == kind {
			return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		}
	}
	log.Fatalf("no CRD of %s", kind)
	return schema{}
}

func decode(manifest map[string]any, spec schema, into any) {
	manifest["spec"] = admitted(manifest["spec"], spec)
	text, err := json.Marshal(manifest)
	must(err)
	must(json.Unmarshal(text, into))
}

// admitted prunes what the schema does not know and fills in its defaults.
func admitted(value any, of schema) any {
	switch given := value.(type) {
	case map[string]any:
		for name, inner := range given {
			if known, ok := of.Properties[name]; ok && inner == nil && known.Default != nil {
				delete(given, name)
			} else if ok {
				given[name] = admitted(inner, known)
			} else if of.AdditionalProperties != nil {
				given[name] = admitted(inner, *of.AdditionalProperties.Schema)
			} else if of.XPreserveUnknownFields == nil {
				delete(given, name)
			}
		}
		for name, known := range of.Properties {
			if _, ok := given[name]; !ok && known.Default != nil {
				var fallback any
				must(json.Unmarshal(known.Default.Raw, &fallback))
				given[name] = admitted(fallback, known)
			}
		}
	case []any:
		for at, inner := range given {
			given[at] = admitted(inner, *of.Items.Schema)
		}
	}
	return value
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
