"""The peer of P8: the loop of PyTorch's tutorial on transfer learning, in our words.

Source: https://pytorch.org/tutorials/beginner/transfer_learning_tutorial.html, which source 003 of
this project runs: ResNet-18 with its backbone frozen, batches of 4, a training and a validation
pass in each epoch, the pictures decoded and cropped anew each time, the best weights kept.
"""

import argparse
import copy

import torch
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.models import resnet18

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--epochs", type=int, default=25)
options = parser.parse_args()

to_floats = [
    transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
]
crops = {
    "train": [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()],
    "val": [transforms.Resize(256), transforms.CenterCrop(224)],
}
sets = {
    split: ImageFolder(f"{options.data}/{split}", transforms.Compose([*crops[split], *to_floats]))
    for split in crops
}
loaders = {
    split: torch.utils.data.DataLoader(pictures, batch_size=4, shuffle=True, num_workers=4)
    for split, pictures in sets.items()
}
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = resnet18()
for parameter in model.parameters():
    parameter.requires_grad = False
model.fc = nn.Linear(model.fc.in_features, len(sets["train"].classes))
model = model.to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.001, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)

best, best_right = copy.deepcopy(model.state_dict()), -1
for epoch in range(options.epochs):
    for split, loader in loaders.items():
        model.train(split == "train")
        num_right = 0
        for loaded in loader:
            pictures, labels = (each.to(device) for each in loaded)
            optimizer.zero_grad()
            with torch.set_grad_enabled(split == "train"):
                scores = model(pictures)
                loss = criterion(scores, labels)
                if split == "train":
                    loss.backward()
                    optimizer.step()
            num_right += (scores.argmax(dim=1) == labels).sum().item()
        if split == "train":
            scheduler.step()
        elif num_right > best_right:
            best, best_right = copy.deepcopy(model.state_dict()), num_right
    print(f"epoch {epoch + 1}: {num_right} of {len(sets['val'])}")
